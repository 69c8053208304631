#version 450
#extension GL_GOOGLE_include_directive : require
// Row scatter-add: y[o, t, i] is the sum of x[o, j, i] over all j whose index is t. `plan` lists these j, sorted by t
// and then ascending, at the positions plan[t] to plan[t + 1] - 1. One invocation computes a result and adds in this
// order: no atomics, and the same sum in every run. VALUE is float or int, or a vector for four elements at once, or uvec2 for int64; `inner` and
// `x_offset` count values. With HEADS a sum ends with its chunk, and those of take_rows_heads.comp are added to it.
#include "sum.glsl"

layout(local_size_x = 128) in;
layout(binding = 0) readonly buffer X { VALUE x[]; };
layout(binding = 1) readonly buffer Plan { uint plan[]; };
#if HEADS
layout(binding = 2) readonly buffer Heads { VALUE heads[]; };
#endif
layout(binding = HEADS + 2) writeonly buffer Y { VALUE y[]; };
layout(push_constant) uniform Push {
    uint n, x_offset, size, count, inner;
#if HEADS
    uint chunk, chunks;
#endif
} p;

void main() {
    const uint step = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
    for (uint e = gl_GlobalInvocationID.x; e < p.n; e += step) {
        const uint row = e / p.inner;
        const uint i = e - row * p.inner;
        const uint o = row / p.size;
        const uint t = row - o * p.size;
        const uint start = plan[t];
        const uint end = plan[t + 1];
        VALUE sum = VALUE(0);
#if HEADS
        const uint first = p.size + 1;  // of the positions in the plan
        uint c = (start - first) / p.chunk + 1;
        const uint own_end = min(end, first + c * p.chunk);
#else
        const uint own_end = end;
#endif
        for (uint k = start; k < own_end; ++k) {
            sum = plus(sum, x[p.x_offset + (o * p.count + plan[k]) * p.inner + i]);
        }
#if HEADS
        for (; first + c * p.chunk < end; ++c) sum = plus(sum, heads[(o * p.chunks + c) * p.inner + i]);
#endif
        y[e] = sum;
    }
}
