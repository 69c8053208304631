#version 450
#extension GL_GOOGLE_include_directive : require
// Adadelta. The state: the mean of squared gradients, and the mean of squared changes.
#define CONSTANTS float sign, weight_decay, lr, rho, one_minus_rho, eps;
#include "parameter.glsl"

void change(inout Element e) {
    const float g = descent_gradient(e.g, e.p, c.sign, c.weight_decay);
    const float square = c.rho * e.s[0] + c.one_minus_rho * g * g;
    const float change = sqrt(e.s[1] + c.eps) / sqrt(square + c.eps) * g;
    e.s[0] = square;
    e.s[1] = c.rho * e.s[1] + c.one_minus_rho * change * change;
    e.p -= c.lr * change;
}
