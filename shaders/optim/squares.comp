#version 450
// The sum of the squares of n elements: one part for each workgroup, from `at` on. Its invocations walk
// over the elements side by side and combine their sums in a tree, always in the same order.
const uint SIZE = 128;
layout(local_size_x = SIZE) in;
layout(binding = 0) readonly buffer X { float x[]; };
layout(binding = 1) writeonly buffer Y { float y[]; };
layout(push_constant) uniform Push {
    uint n, x_offset, at;
} p;
shared float partial[SIZE];

void main() {
    const uint lane = gl_LocalInvocationID.x;
    float sum = 0.0;
    for (uint i = gl_GlobalInvocationID.x; i < p.n; i += gl_NumWorkGroups.x * SIZE) {
        const float value = x[p.x_offset + i];
        sum += value * value;
    }
    partial[lane] = sum;
    for (uint half_size = SIZE / 2; half_size > 0; half_size /= 2) {
        barrier();
        if (lane < half_size) partial[lane] += partial[lane + half_size];
    }
    if (lane == 0) y[p.at + gl_WorkGroupID.x] = partial[0];
}
