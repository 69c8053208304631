#version 450
#extension GL_GOOGLE_include_directive : require
// RMSprop. The state: the mean of squared gradients, with CENTERED the mean of gradients, with MOMENTUM the sum of
// changes.
#define CONSTANTS float sign, weight_decay, lr, alpha, one_minus_alpha, eps, momentum;
#include "parameter.glsl"

void change(inout Element e) {
    const float g = descent_gradient(e.g, e.p, c.sign, c.weight_decay);
    float square = c.alpha * e.s[0] + c.one_minus_alpha * g * g;
    e.s[0] = square;
#if CENTERED
    const float mean = e.s[1] + c.one_minus_alpha * (g - e.s[1]);
    e.s[1] = mean;
    square -= mean * mean;
#endif
    float change = g / (sqrt(square) + c.eps);
#if MOMENTUM
    change += c.momentum * e.s[STATES - 1];
    e.s[STATES - 1] = change;
#endif
    e.p -= c.lr * change;
}
