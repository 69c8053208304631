#version 450
// Sorts tiles of rows of keys in shared memory by a bitonic network, and writes the first `keep` elements of each tile:
// their keys, and their indices in the row. Of equal keys the smaller index comes first. With FIRST the elements are
// those of the input; else they are what another launch kept, whose indices are read. KEY is uint, or uvec2 for keys of
// two words. LAST: nothing is launched after it, so the keys are not written.
//
// A workgroup sorts SPAN elements, as SPAN / p.tile tiles.
const uint SIZE = 128;
const uint SPAN = 1024;
layout(local_size_x = SIZE) in;
layout(binding = 0) readonly buffer X { KEY x[]; };
#if !FIRST
layout(binding = 1) readonly buffer Index { uint index[]; };
#endif
layout(binding = 2 - FIRST) writeonly buffer Y { uint y[]; };
#if !LAST
layout(binding = 3 - FIRST) writeonly buffer Keys { KEY keys[]; };
#endif
layout(push_constant) uniform Push {
    uint tiles, size;    // all tiles, elements of a row
    uint tile, per_row;  // elements of a tile, a power of 2; tiles of a row
    uint keep, columns;  // columns: workgroups along x, the other ones along z
} p;

shared KEY sorted[SPAN];
shared uint indices[SPAN];

bool less(uint a, uint b) {
    return a < b;
}

bool less(uvec2 a, uvec2 b) {
    return a.y < b.y || (a.y == b.y && a.x < b.x);
}

// Puts the elements a < b of the tile in order.
void exchange(uint a, uint b) {
    const KEY left = sorted[a], right = sorted[b];
    const uint i = indices[a], j = indices[b];
    if (less(right, left) || (right == left && j < i)) {
        sorted[a] = right;
        sorted[b] = left;
        indices[a] = j;
        indices[b] = i;
    }
}

void main() {
    const uint me = gl_LocalInvocationID.x;
    const uint first_tile = (gl_WorkGroupID.z * p.columns + gl_WorkGroupID.x) * (SPAN / p.tile);
    if (first_tile >= p.tiles) return;
    for (uint e = me; e < SPAN; e += SIZE) {
        const uint tile = first_tile + e / p.tile;
        const uint row = tile / p.per_row;
        const uint column = (tile - row * p.per_row) * p.tile + e % p.tile;
        KEY key = KEY(0xffffffffu);
        uint at = 0xffffffffu;  // behind all elements
        if (tile < p.tiles && column < p.size) {
            key = x[row * p.size + column];
#if FIRST
            at = column;
#else
            at = index[row * p.size + column];
#endif
        }
        sorted[e] = key;
        indices[e] = at;
    }
    barrier();
    for (uint block = 2; block <= p.tile; block *= 2) {
        // Two sorted halves, the second one backwards, are a bitonic sequence.
        const uint half_block = block / 2;
        for (uint pair = me; pair < SPAN / 2; pair += SIZE) {
            const uint within = pair % half_block;
            const uint start = (pair - within) * 2;
            exchange(start + within, start + block - 1 - within);
        }
        barrier();
        for (uint reach = half_block / 2; reach > 0; reach /= 2) {
            for (uint pair = me; pair < SPAN / 2; pair += SIZE) {
                const uint a = (pair - pair % reach) * 2 + pair % reach;
                exchange(a, a + reach);
            }
            barrier();
        }
    }
    for (uint e = me; e < SPAN; e += SIZE) {
        const uint tile = first_tile + e / p.tile;
        const uint rank = e % p.tile;
        if (tile < p.tiles && rank < p.keep) {
            y[tile * p.keep + rank] = indices[e];
#if !LAST
            keys[tile * p.keep + rank] = sorted[e];
#endif
        }
    }
}
