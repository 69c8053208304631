#version 450
#extension GL_GOOGLE_include_directive : require
// RAdam. The state: the mean of gradients and the mean of their squares. `shrink` is the factor of decoupled weight
// decay; `rectification` is 0 as long as the variance of the squares is not known.
#define CONSTANTS float sign, weight_decay, shrink, one_minus_beta1, beta2, one_minus_beta2, step_size, \
    rectification, eps;
#include "parameter.glsl"

void change(inout Element e) {
    const float value = e.p * c.shrink;
    const float g = descent_gradient(e.g, value, c.sign, c.weight_decay);
    const float mean = e.s[0] + c.one_minus_beta1 * (g - e.s[0]);
    const float square = c.beta2 * e.s[1] + c.one_minus_beta2 * g * g;
    const float step = mean * c.step_size;
    e.s[0] = mean;
    e.s[1] = square;
    e.p = value - (c.rectification == 0.0 ? step : step * (c.rectification / (sqrt(square) + c.eps)));
}
