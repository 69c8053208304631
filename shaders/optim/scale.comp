#version 450
#extension GL_GOOGLE_include_directive : require
#include "multi_tensor.glsl"
// Many tensors times one number, in place.

layout(binding = 1) readonly buffer Factor { float factor[]; };
layout(binding = 2) buffer X { float x[]; };
layout(push_constant) uniform Push {
    uint first_row, last_row, each;
} c;

void main() {
    const Row row = row_of_workgroup(c.first_row, c.last_row);
    const uint start = (gl_WorkGroupID.x - row.first) * c.each;
    const uint end = min(row.n, start + c.each);
    for (uint i = start + gl_LocalInvocationID.x; i < end; i += SIZE) x[row.at[0] + i] *= factor[0];
}
