#version 450
#extension GL_GOOGLE_include_directive : require
// Parts of the sums of take_rows_backward.comp, for groups that may be long. The sorted pairs of index and position are
// cut into chunks; y[o, c, i] is the sum over the start of chunk c that belongs to the group in which the chunk before
// it ended, in order. Where none does, it is not written and not read.
#include "sum.glsl"

layout(local_size_x = 128) in;
layout(binding = 0) readonly buffer X { VALUE x[]; };
layout(binding = 1) readonly buffer Pairs { uvec2 pairs[]; };
layout(binding = 2) writeonly buffer Y { VALUE y[]; };
layout(push_constant) uniform Push {
    uint n, x_offset, chunk, count, inner, chunks;
} p;

void main() {
    const uint step = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
    for (uint e = gl_GlobalInvocationID.x; e < p.n; e += step) {
        const uint row = e / p.inner;
        const uint i = e - row * p.inner;
        const uint o = row / p.chunks;
        const uint start = (row - o * p.chunks) * p.chunk;
        const uint end = min(start + p.chunk, p.count);
        if (start == 0) continue;
        const uint group = pairs[start - 1].x;
        VALUE sum = VALUE(0);
        uint k = start;
        for (; k < end && pairs[k].x == group; ++k) {
            sum = plus(sum, x[p.x_offset + (o * p.count + pairs[k].y) * p.inner + i]);
        }
        if (k > start) y[e] = sum;
    }
}
