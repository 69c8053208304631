#version 450
#extension GL_GOOGLE_include_directive : require
#include "parameter.glsl"
// Lion. The state is the mean of the gradients.

layout(push_constant) uniform Push {
    uint n, p_offset, g_offset;
    float direction, shrink, lr, beta1, one_minus_beta1, beta2, one_minus_beta2;
} c;

void main() {
    const uint step = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
    for (uint i = gl_GlobalInvocationID.x; i < c.n; i += step) {
        const uint at = c.p_offset + i;
        const float g = c.direction * g_data[c.g_offset + i];
        p[at] = p[at] * c.shrink - c.lr * sign(c.beta1 * s[i] + c.one_minus_beta1 * g);
        s[i] = c.beta2 * s[i] + c.one_minus_beta2 * g;
    }
}
