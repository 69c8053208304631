#version 450
#extension GL_GOOGLE_include_directive : require
// Averaged stochastic gradient descent. The state: the average, into which the parameter enters by its weight.
#define CONSTANTS float sign, weight_decay, shrink, step_size, weight;
#include "parameter.glsl"

void change(inout Element e) {
    const float g = descent_gradient(e.g, e.p, c.sign, c.weight_decay);
    e.p = e.p * c.shrink - c.step_size * g;
    e.s[0] = c.weight == 1.0 ? e.p : e.s[0] + (e.p - e.s[0]) * c.weight;
}
