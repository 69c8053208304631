#version 450
// Row scatter: y[index[j], i] = x[j, i] where index[j] >= 0; no index occurs twice. x is strided, y is contiguous
// from its offset on, and its other rows are not written.

layout(local_size_x = 128) in;
layout(binding = 0) readonly buffer X { WORD x[]; };
layout(binding = 1) readonly buffer Index { int index[]; };
layout(binding = 2) writeonly buffer Y { WORD y[]; };
layout(push_constant) uniform Push {
    uint n, x_offset, x_row_stride, x_column_stride, y_offset, inner;
} p;

void main() {
    const uint step = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
    for (uint e = gl_GlobalInvocationID.x; e < p.n; e += step) {
        const uint j = e / p.inner;
        const uint i = e - j * p.inner;
        const int row = index[j];
        if (row >= 0) {
            y[p.y_offset + uint(row) * p.inner + i] = x[p.x_offset + j * p.x_row_stride + i * p.x_column_stride];
        }
    }
}
