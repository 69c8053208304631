#version 450
// tril and triu: y = x on and below the diagonal, or with UPPER on and above it, 0 elsewhere. x holds contiguous
// matrices.

layout(local_size_x = 128) in;
layout(binding = 0) readonly buffer X { WORD x[]; };
layout(binding = 1) writeonly buffer Y { WORD y[]; };
layout(push_constant) uniform Push {
    uint n, x_offset, rows, columns;
    int diagonal;
} p;

void main() {
    const uint step = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
    for (uint e = gl_GlobalInvocationID.x; e < p.n; e += step) {
        const uint row = e / p.columns;
        const int distance = int(e - row * p.columns) - int(row % p.rows);
#if UPPER
        const bool kept = distance >= p.diagonal;
#else
        const bool kept = distance <= p.diagonal;
#endif
        y[e] = kept ? x[p.x_offset + e] : WORD(0);
    }
}
