#version 450
// y[o, j, i] = x[o, index[j], i], and 0 where index[j] is negative. x is (outer, size, inner) and contiguous. WORD is
// uint for elements of 4 bytes, uvec2 for those of 8, and uvec4 for several at once, in which inner and the offset count.

layout(local_size_x = 128) in;
layout(binding = 0) readonly buffer X { WORD x[]; };
layout(binding = 1) readonly buffer Index { int index[]; };
layout(binding = 2) writeonly buffer Y { WORD y[]; };
layout(push_constant) uniform Push {
    uint n, x_offset, size, count, inner;
} p;

void main() {
    const uint step = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
    for (uint e = gl_GlobalInvocationID.x; e < p.n; e += step) {
        const uint row = e / p.inner;
        const uint o = row / p.count;
        const int from = index[row - o * p.count];
        y[e] = from < 0 ? WORD(0) : x[p.x_offset + (o * p.size + uint(from)) * p.inner + (e - row * p.inner)];
    }
}
