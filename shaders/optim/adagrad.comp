#version 450
#extension GL_GOOGLE_include_directive : require
#include "parameter.glsl"
// Adagrad. The state is the sum of the gradients' squares.

layout(push_constant) uniform Push {
    uint n, p_offset, g_offset;
    float sign, weight_decay, lr, eps;
} c;

void main() {
    const uint step = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
    for (uint i = gl_GlobalInvocationID.x; i < c.n; i += step) {
        const uint at = c.p_offset + i;
        const float g = c.sign * g_data[c.g_offset + i] + c.weight_decay * p[at];
        const float sum = s[i] + g * g;
        s[i] = sum;
        p[at] -= c.lr * (g / (sqrt(sum) + c.eps));
    }
}
