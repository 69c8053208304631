#version 450
#extension GL_GOOGLE_include_directive : require
#include "parameter.glsl"
// A moving average p of g: it goes a part of the way.

layout(push_constant) uniform Push {
    uint n, p_offset, g_offset;
    float weight;
} c;

void main() {
    const uint step = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
    for (uint i = gl_GlobalInvocationID.x; i < c.n; i += step) {
        const float mean = p[c.p_offset + i];
        p[c.p_offset + i] = mean + c.weight * (g_data[c.g_offset + i] - mean);
    }
}
