#version 450
#extension GL_GOOGLE_include_directive : require
// The positions of the elements that are not 0, in ascending order. COUNT: how many a tile of SIZE * RUN elements has;
// else they are written, where starts[tile] says. nan is not 0, and -0.0 is.
const uint SIZE = 128;
const uint RUN = 16;
const uint TILE = SIZE * RUN;
layout(local_size_x = SIZE) in;
#if BYTES == 8
layout(binding = 0) readonly buffer X { uvec2 x[]; };
#else
layout(binding = 0) readonly buffer X { uint x[]; };
#endif
#if COUNT
layout(binding = 1) writeonly buffer Y { uint y[]; };
#else
layout(binding = 1) readonly buffer Starts { uint starts[]; };
layout(binding = 2) writeonly buffer Y { uint y[]; };
#endif
layout(push_constant) uniform Push {
    uint n, x_offset, tiles, columns;  // columns: workgroups along x, the other ones along z
} p;
#include "elements.glsl"

bool counts_in(uint at) {
    const KEY bits = ELEMENT(p.x_offset + at);
#if KIND == 2 && BYTES == 8
    return (bits.x | (bits.y & 0x7fffffffu)) != 0;
#elif KIND >= 2
    return (bits & (MASK >> 1)) != 0;
#elif BYTES == 8
    return (bits.x | bits.y) != 0;
#else
    return bits != 0;
#endif
}

shared uint totals[SIZE];

void main() {
    const uint me = gl_LocalInvocationID.x;
    const uint tile = gl_WorkGroupID.z * p.columns + gl_WorkGroupID.x;
    if (tile >= p.tiles) return;
    const uint first = min(tile * TILE + me * RUN, p.n);
    const uint last = min(first + RUN, p.n);
    uint mine = 0;
    for (uint i = first; i < last; ++i) mine += counts_in(i) ? 1 : 0;
    totals[me] = mine;
#if COUNT
    for (uint reach = SIZE / 2; reach > 0; reach /= 2) {
        barrier();
        if (me < reach) totals[me] += totals[me + reach];
    }
    if (me == 0) y[tile] = totals[0];
#else
    for (uint reach = 1; reach < SIZE; reach *= 2) {
        barrier();
        const uint other = me >= reach ? totals[me - reach] : 0;
        barrier();
        totals[me] += other;
    }
    uint at = starts[tile] + totals[me] - mine;
    for (uint i = first; i < last; ++i) {
        if (counts_in(i)) y[at++] = i;
    }
#endif
}
