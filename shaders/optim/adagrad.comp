#version 450
#extension GL_GOOGLE_include_directive : require
// Adagrad. The state: the sum of squared gradients.
#define CONSTANTS float sign, weight_decay, lr, eps;
#include "parameter.glsl"

void change(inout Element e) {
    const float g = descent_gradient(e.g, e.p, c.sign, c.weight_decay);
    e.s[0] += g * g;
    e.p -= c.lr * (g / (sqrt(e.s[0]) + c.eps));
}
