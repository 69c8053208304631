#version 450
#extension GL_GOOGLE_include_directive : require
// How often each digit occurs in each tile: y[row, digit, tile].
layout(binding = 0) readonly buffer X { uvec2 x[]; };
layout(binding = 1) writeonly buffer Y { uint y[]; };
#include "digits.glsl"

void main() {
    const uint me = gl_LocalInvocationID.x;
    const uint tile = gl_WorkGroupID.z * p.columns + gl_WorkGroupID.x;
    if (tile >= p.tiles) return;
    const uint row = tile / p.per_row;
    const uint start = (tile - row * p.per_row) * TILE;
    for (uint digit = 0; digit < BINS; ++digit) counts[digit * SIZE + me] = 0;
    const uint last = min(start + TILE, p.size);
    for (uint i = start + me; i < last; i += SIZE) {
        ++counts[((x[row * p.size + i].x >> p.shift) % BINS) * SIZE + me];
    }
    for (uint reach = SIZE / 2; reach > 0; reach /= 2) {
        barrier();
        if (me < reach) {
            for (uint digit = 0; digit < BINS; ++digit) {
                counts[digit * SIZE + me] += counts[digit * SIZE + me + reach];
            }
        }
    }
    barrier();
    if (me < BINS) y[(row * BINS + me) * p.per_row + tile - row * p.per_row] = counts[me * SIZE];
}
