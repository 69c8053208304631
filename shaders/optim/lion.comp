#version 450
#extension GL_GOOGLE_include_directive : require
// Lion. The state: the mean of gradients.
#define CONSTANTS float direction, shrink, lr, beta1, one_minus_beta1, beta2, one_minus_beta2;
#include "parameter.glsl"
#include "math/special.glsl"

void change(inout Element e) {
    const float g = c.direction * e.g;
    const float mean = c.beta1 * e.s[0] + c.one_minus_beta1 * g;
    e.p = e.p * c.shrink - c.lr * (is_nan(mean) ? mean : sign(mean));
    e.s[0] = c.beta2 * e.s[0] + c.one_minus_beta2 * g;
}
