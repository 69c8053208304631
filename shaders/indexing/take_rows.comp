#version 450
// Row gather: y[o, j, i] = x[o, index[j], i], and 0 where index[j] < 0. x is (outer, size, inner), of any strides.
// WORD is uint for elements of 4 bytes, uvec2 for 8 bytes, and uvec4 for several elements at once. `inner`,
// `x_offset` and the strides count words.

layout(local_size_x = 128) in;
layout(binding = 0) readonly buffer X { WORD x[]; };
layout(binding = 1) readonly buffer Index { int index[]; };
layout(binding = 2) writeonly buffer Y { WORD y[]; };
layout(push_constant) uniform Push {
    uint n, x_offset, outer_stride, row_stride, column_stride, count, inner;
} p;

void main() {
    const uint step = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
    for (uint e = gl_GlobalInvocationID.x; e < p.n; e += step) {
        const uint row = e / p.inner;
        const uint o = row / p.count;
        const int source = index[row - o * p.count];
        const uint first = p.x_offset + o * p.outer_stride + uint(source) * p.row_stride;
        y[e] = source < 0 ? WORD(0) : x[first + (e - row * p.inner) * p.column_stride];
    }
}
