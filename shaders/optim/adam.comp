#version 450
#extension GL_GOOGLE_include_directive : require
#include "parameter.glsl"
// Adam. The state is the mean of the gradients, that of their squares, and with a third part the
// largest mean of squares so far.

layout(push_constant) uniform Push {
    uint n, p_offset, g_offset;
    float sign, weight_decay, shrink;  // shrink: what decoupled weight decay leaves of the parameter
    float one_minus_beta1, beta2, one_minus_beta2;
    float step_size, root_correction2, eps;
} c;

void main() {
    const uint step = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
    for (uint i = gl_GlobalInvocationID.x; i < c.n; i += step) {
        const uint at = c.p_offset + i;
        const float value = p[at] * c.shrink;
        const float g = c.sign * g_data[c.g_offset + i] + c.weight_decay * value;
        const float mean = s[i] + c.one_minus_beta1 * (g - s[i]);
        float square = c.beta2 * s[c.n + i] + c.one_minus_beta2 * g * g;
        s[i] = mean;
        s[c.n + i] = square;
#if STATES > 2
        square = square > s[2 * c.n + i] ? square : s[2 * c.n + i];
        s[2 * c.n + i] = square;
#endif
        p[at] = value - c.step_size * (mean / (sqrt(square) / c.root_correction2 + c.eps));
    }
}
