#version 450
#extension GL_GOOGLE_include_directive : require
// Stochastic gradient descent. The state, if any: the momentum.
#define CONSTANTS float sign, weight_decay, lr, momentum, gradient_weight; uint nesterov;
#include "parameter.glsl"

void change(inout Element e) {
    float g = descent_gradient(e.g, e.p, c.sign, c.weight_decay);
#if STATES > 0
    e.s[0] = c.momentum * e.s[0] + c.gradient_weight * g;
    g = c.nesterov != 0 ? g + c.momentum * e.s[0] : e.s[0];
#endif
    e.p -= c.lr * g;
}
