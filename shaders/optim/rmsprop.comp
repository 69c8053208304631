#version 450
#extension GL_GOOGLE_include_directive : require
#include "parameter.glsl"
// RMSprop. The state is the mean of the gradients' squares, then that of the gradients (CENTERED), and
// the momentum (MOMENTUM), each where there is one.

layout(push_constant) uniform Push {
    uint n, p_offset, g_offset;
    float sign, weight_decay, lr, alpha, one_minus_alpha, eps, momentum;
} c;

void main() {
    const uint step = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
    for (uint i = gl_GlobalInvocationID.x; i < c.n; i += step) {
        const uint at = c.p_offset + i;
        const float g = c.sign * g_data[c.g_offset + i] + c.weight_decay * p[at];
        float square = c.alpha * s[i] + c.one_minus_alpha * g * g;
        s[i] = square;
#if CENTERED
        const float mean = s[c.n + i] + c.one_minus_alpha * (g - s[c.n + i]);
        s[c.n + i] = mean;
        square -= mean * mean;
#endif
        float change = g / (sqrt(square) + c.eps);
#if MOMENTUM
        change += c.momentum * s[(STATES - 1) * c.n + i];
        s[(STATES - 1) * c.n + i] = change;
#endif
        p[at] -= c.lr * change;
    }
}
