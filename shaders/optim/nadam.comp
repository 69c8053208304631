#version 450
#extension GL_GOOGLE_include_directive : require
// NAdam. The state: the mean of gradients and the mean of their squares. `shrink` is the factor of decoupled weight
// decay, the sizes are those of the gradient's part of the step and of the mean's.
#define CONSTANTS float sign, weight_decay, shrink, one_minus_beta1, beta2, one_minus_beta2, correction2, \
    gradient_size, mean_size, eps;
#include "parameter.glsl"

void change(inout Element e) {
    const float value = e.p * c.shrink;
    const float g = descent_gradient(e.g, value, c.sign, c.weight_decay);
    const float mean = e.s[0] + c.one_minus_beta1 * (g - e.s[0]);
    const float square = c.beta2 * e.s[1] + c.one_minus_beta2 * g * g;
    const float divisor = sqrt(square / c.correction2) + c.eps;
    e.s[0] = mean;
    e.s[1] = square;
    e.p = value - c.gradient_size * (g / divisor) - c.mean_size * (mean / divisor);
}
