#version 450
#extension GL_GOOGLE_include_directive : require
// Sum of squares of n elements: each workgroup writes a partial sum, from y[out_offset] on. Its invocations stride over
// the elements and combine their sums in a tree, always in the same order. With MULTI_TENSOR one dispatch covers many
// tensors.
#if MULTI_TENSOR
#include "optim/multi_tensor.glsl"
layout(push_constant) uniform Push {
    uint first_row, last_row, workgroup_elements, out_offset;
} p;
#else
const uint SIZE = 128;
layout(local_size_x = SIZE) in;
layout(push_constant) uniform Push {
    uint n, x_offset, out_offset;
} p;
#endif
layout(binding = MULTI_TENSOR) readonly buffer X { float x[]; };
layout(binding = MULTI_TENSOR + 1) writeonly buffer Y { float y[]; };
shared float partial[SIZE];

void main() {
    const uint lane = gl_LocalInvocationID.x;
#if MULTI_TENSOR
    const Row row = row_of_workgroup(p.first_row, p.last_row);
    const uint start = (gl_WorkGroupID.x - row.first_workgroup) * p.workgroup_elements;
    const uint end = min(row.n, start + p.workgroup_elements), step = SIZE, x_offset = row.offsets[0];
#else
    const uint start = gl_WorkGroupID.x * SIZE;
    const uint end = p.n, step = gl_NumWorkGroups.x * SIZE, x_offset = p.x_offset;
#endif
    float sum = 0.0;
    for (uint i = start + lane; i < end; i += step) {
        const float value = x[x_offset + i];
        sum += value * value;
    }
    partial[lane] = sum;
    for (uint half_size = SIZE / 2; half_size > 0; half_size /= 2) {
        barrier();
        if (lane < half_size) partial[lane] += partial[lane + half_size];
    }
    if (lane == 0) y[p.out_offset + gl_WorkGroupID.x] = partial[0];
}
