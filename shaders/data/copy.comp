#version 450
#extension GL_GOOGLE_include_directive : require
// y = x, both strided with RANK axes. WORD is uint for elements of 4 bytes, uvec2 for those of 8, and uvec4
// for several at once.
// What lies between the elements of y stays as it is.
#include "index.glsl"

layout(local_size_x = 128) in;
layout(binding = 0) readonly buffer X { WORD x[]; };
layout(binding = 1) writeonly buffer Y { WORD y[]; };
layout(push_constant) uniform Push {
    uint n, x_offset, y_offset;
    uint sizes[RANK];
    uint x_strides[RANK];
    uint y_strides[RANK];
} p;

void main() {
    const uint step = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
    for (uint i = gl_GlobalInvocationID.x; i < p.n; i += step) {
        y[p.y_offset + strided(i, p.sizes, p.y_strides)] = x[p.x_offset + strided(i, p.sizes, p.x_strides)];
    }
}
