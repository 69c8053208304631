#version 450
#extension GL_GOOGLE_include_directive : require
// Moves the elements of a row behind those with smaller digits; equal digits keep their order. starts[row, digit, tile]
// is where the first element of a tile with that digit goes; behind the starts of a row comes its size.
layout(binding = 0) readonly buffer X { uvec2 x[]; };
layout(binding = 1) readonly buffer Starts { uint starts[]; };
layout(binding = 2) writeonly buffer Y { uvec2 y[]; };
#include "digits.glsl"
shared uint totals[SIZE];

void main() {
    const uint me = gl_LocalInvocationID.x;
    const uint tile = gl_WorkGroupID.z * p.columns + gl_WorkGroupID.x;
    if (tile >= p.tiles) return;
    const uint row = tile / p.per_row;
    const uint in_row = tile - row * p.per_row;
    const uint base = row * p.size;
    const uint first = min(in_row * TILE + me * RUN, p.size);
    const uint last = min(first + RUN, p.size);
    for (uint digit = 0; digit < BINS; ++digit) counts[digit * SIZE + me] = 0;
    for (uint i = first; i < last; ++i) ++counts[((x[base + i].x >> p.shift) % BINS) * SIZE + me];
    barrier();
    // Each group of SIZE / BINS invocations turns the counts of one digit into places, RUNS of them in a row each.
    const uint RUNS = BINS;
    const uint digit = me / (SIZE / BINS);
    const uint place = digit * SIZE + me % (SIZE / BINS) * RUNS;
    uint total = 0;
    for (uint k = 0; k < RUNS; ++k) total += counts[place + k];
    uint before = starts[row * (BINS * p.per_row + 1) + digit * p.per_row + in_row];
    totals[me] = total;
    barrier();
    for (uint other = digit * (SIZE / BINS); other < me; ++other) before += totals[other];
    for (uint k = 0; k < RUNS; ++k) {
        const uint count = counts[place + k];
        counts[place + k] = before;
        before += count;
    }
    barrier();
    for (uint i = first; i < last; ++i) {
        const uvec2 pair = x[base + i];
        const uint at = ((pair.x >> p.shift) % BINS) * SIZE + me;
        y[base + counts[at]] = pair;
        ++counts[at];
    }
}
