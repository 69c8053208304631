#version 450
#extension GL_GOOGLE_include_directive : require
#include "optim/multi_tensor.glsl"
// Multiplies many tensors by one number, in place.

layout(binding = 1) readonly buffer Factor { float factor[]; };
layout(binding = 2) buffer X { float x[]; };
layout(push_constant) uniform Push {
    uint first_row, last_row, workgroup_elements;
} c;

void main() {
    const Row row = row_of_workgroup(c.first_row, c.last_row);
    const uint start = (gl_WorkGroupID.x - row.first_workgroup) * c.workgroup_elements;
    const uint end = min(row.n, start + c.workgroup_elements);
    for (uint i = start + gl_LocalInvocationID.x; i < end; i += SIZE) x[row.offsets[0] + i] *= factor[0];
}
