#version 450
// y = x on and below the diagonal (above it with UPPER), 0 elsewhere; x is contiguous, of matrices.

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
        const uint line = e / p.columns;
        const int right = int(e - line * p.columns) - int(line % p.rows);
#if UPPER
        const bool kept = right >= p.diagonal;
#else
        const bool kept = right <= p.diagonal;
#endif
        y[e] = kept ? x[p.x_offset + e] : WORD(0);
    }
}
