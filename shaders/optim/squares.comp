#version 450
#extension GL_GOOGLE_include_directive : require
// The sum of the squares of n elements: one part for each workgroup, from `at` on. Its invocations walk
// over the elements side by side and combine their sums in a tree, always in the same order. With TOGETHER
// a dispatch does that for many tensors.
#if TOGETHER
#include "multi_tensor.glsl"
layout(push_constant) uniform Push {
    uint first_row, last_row, each, at;
} p;
#else
const uint SIZE = 128;
layout(local_size_x = SIZE) in;
layout(push_constant) uniform Push {
    uint n, x_offset, at;
} p;
#endif
layout(binding = TOGETHER) readonly buffer X { float x[]; };
layout(binding = TOGETHER + 1) writeonly buffer Y { float y[]; };
shared float partial[SIZE];

void main() {
    const uint lane = gl_LocalInvocationID.x;
#if TOGETHER
    const Row row = row_of_workgroup(p.first_row, p.last_row);
    const uint start = (gl_WorkGroupID.x - row.first) * p.each;
    const uint end = min(row.n, start + p.each), step = SIZE, x_offset = row.at[0];
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
    if (lane == 0) y[p.at + gl_WorkGroupID.x] = partial[0];
}
