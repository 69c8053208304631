#version 450
#extension GL_GOOGLE_include_directive : require
#include "parameter.glsl"
// Gradient descent; with a state, its first part is the momentum.

layout(push_constant) uniform Push {
    uint n, p_offset, g_offset;
    float sign, weight_decay, lr, momentum, fresh;
    uint nesterov;
} c;

void main() {
    const uint step = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
    for (uint i = gl_GlobalInvocationID.x; i < c.n; i += step) {
        const uint at = c.p_offset + i;
        float g = c.sign * g_data[c.g_offset + i] + c.weight_decay * p[at];
#if STATES > 0
        s[i] = c.momentum * s[i] + c.fresh * g;
        g = c.nesterov != 0 ? g + c.momentum * s[i] : s[i];
#endif
        p[at] -= c.lr * g;
    }
}
