#version 450
#extension GL_GOOGLE_include_directive : require
#include "parameter.glsl"
// Adadelta. The state is the mean of the gradients' squares and that of the changes'.

layout(push_constant) uniform Push {
    uint n, p_offset, g_offset;
    float sign, weight_decay, lr, rho, one_minus_rho, eps;
} c;

void main() {
    const uint step = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
    for (uint i = gl_GlobalInvocationID.x; i < c.n; i += step) {
        const uint at = c.p_offset + i;
        const float g = c.sign * g_data[c.g_offset + i] + c.weight_decay * p[at];
        const float square = c.rho * s[i] + c.one_minus_rho * g * g;
        const float change = sqrt(s[c.n + i] + c.eps) / sqrt(square + c.eps) * g;
        s[i] = square;
        s[c.n + i] = c.rho * s[c.n + i] + c.one_minus_rho * change * change;
        p[at] -= c.lr * change;
    }
}
