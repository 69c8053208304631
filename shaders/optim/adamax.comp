#version 450
#extension GL_GOOGLE_include_directive : require
// Adamax. The state: the mean of gradients and their decaying maximum.
#define CONSTANTS float sign, weight_decay, one_minus_beta1, beta2, step_size, eps;
#include "parameter.glsl"
#include "math/special.glsl"

void change(inout Element e) {
    const float g = descent_gradient(e.g, e.p, c.sign, c.weight_decay);
    const float mean = e.s[0] + c.one_minus_beta1 * (g - e.s[0]);
    const float largest = larger(e.s[1] * c.beta2, abs(g) + c.eps);
    e.s[0] = mean;
    e.s[1] = largest;
    e.p -= c.step_size * (mean / largest);
}
