#version 450
#extension GL_GOOGLE_include_directive : require
// Cumulative sums of integers or bools along the middle axis of x (outer, size, inner), as int64. A workgroup sums a row,
// SIZE * RUN elements at a time, and carries their total to the next ones. Sums wrap around.
const uint SIZE = 128;
const uint RUN = 4;
layout(local_size_x = SIZE) in;
#if BYTES == 8
layout(binding = 0) readonly buffer X { uvec2 x[]; };
#else
layout(binding = 0) readonly buffer X { uint x[]; };
#endif
layout(binding = 1) writeonly buffer Y { uvec2 y[]; };
layout(push_constant) uniform Push {
    uint rows, size, inner, x_offset;
    uint columns;  // workgroups along x, the other ones along z
} p;
#include "elements.glsl"

uvec2 add(uvec2 a, uvec2 b) {
    uint carry;
    const uint low = uaddCarry(a.x, b.x, carry);
    return uvec2(low, a.y + b.y + carry);
}

// The element as a whole number of two words.
uvec2 number_at(uint at) {
    const KEY bits = ELEMENT(p.x_offset + at);
#if BYTES == 8
    return bits;
#elif KIND == 1
    const uint sign = bits >> (8 * BYTES - 1);
    return uvec2(sign != 0 ? bits | ~MASK : bits, sign != 0 ? 0xffffffffu : 0);
#else
    return uvec2(bits, 0);
#endif
}

shared uvec2 totals[SIZE];

void main() {
    const uint me = gl_LocalInvocationID.x;
    const uint row = gl_WorkGroupID.z * p.columns + gl_WorkGroupID.x;
    if (row >= p.rows) return;
    const uint base = row / p.inner * p.size * p.inner + row % p.inner;
    uvec2 carried = uvec2(0);
    for (uint start = 0; start < p.size; start += SIZE * RUN) {
        const uint first = min(start + me * RUN, p.size);
        const uint last = min(first + RUN, p.size);
        uvec2 mine = uvec2(0);
        for (uint i = first; i < last; ++i) mine = add(mine, number_at(base + i * p.inner));
        barrier();
        totals[me] = mine;
        for (uint reach = 1; reach < SIZE; reach *= 2) {
            barrier();
            const uvec2 other = me >= reach ? totals[me - reach] : uvec2(0);
            barrier();
            totals[me] = add(totals[me], other);
        }
        barrier();
        uvec2 sum = add(carried, me > 0 ? totals[me - 1] : uvec2(0));
        for (uint i = first; i < last; ++i) {
            const uint at = base + i * p.inner;
            sum = add(sum, number_at(at));
            y[at] = sum;
        }
        carried = add(carried, totals[SIZE - 1]);
    }
}
