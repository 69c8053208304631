#version 450
// y[row, index[row, j]] = x[row, j]: what select.comp undoes. No index may come twice in a row.
layout(local_size_x = 128) in;
layout(binding = 0) readonly buffer X { WORD x[]; };
layout(binding = 1) readonly buffer Index { uint index[]; };
layout(binding = 2) writeonly buffer Y { WORD y[]; };
layout(push_constant) uniform Push {
    uint n, x_offset, index_offset;
    uint size, count;  // elements of a row of the result and of the input
} p;

void main() {
    const uint step = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
    for (uint e = gl_GlobalInvocationID.x; e < p.n; e += step) {
        y[e / p.count * p.size + index[p.index_offset + e]] = x[p.x_offset + e];
    }
}
