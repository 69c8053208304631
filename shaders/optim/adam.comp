#version 450
#extension GL_GOOGLE_include_directive : require
// Adam. The state: the mean of gradients, the mean of their squares, and with STATES=3 (AMSGrad) the largest mean of
// squares so far. `shrink` is the factor of decoupled weight decay.
#define CONSTANTS float sign, weight_decay, shrink, one_minus_beta1, beta2, one_minus_beta2, step_size, \
    root_correction2, eps;
#include "parameter.glsl"
#include "math/special.glsl"

void change(inout Element e) {
    const float value = e.p * c.shrink;
    const float g = descent_gradient(e.g, value, c.sign, c.weight_decay);
    const float mean = e.s[0] + c.one_minus_beta1 * (g - e.s[0]);
    float square = c.beta2 * e.s[1] + c.one_minus_beta2 * g * g;
    e.s[0] = mean;
    e.s[1] = square;
#if STATES > 2
    square = larger(square, e.s[2]);
    e.s[2] = square;
#endif
    e.p = value - c.step_size * (mean / (sqrt(square) / c.root_correction2 + c.eps));
}
