#version 450
#extension GL_GOOGLE_include_directive : require
#include "flash.glsl"
// A gradient of attention.comp: of the queries (OF 0), the keys (1) or the values (2). The scores are computed once more.
// a holds, one behind the other, the queries, the keys, the values, the results' gradients, the logarithms of the sums of
// exponentials, and for each query what is subtracted from the gradients of its shares.
layout(binding = 0) readonly buffer A { float a[]; };
#if MASK
layout(binding = 1) readonly buffer Mask { float mask[]; };
#endif
layout(binding = MASK + 1) writeonly buffer Y { float y[]; };
layout(push_constant) uniform Push {
    uint blocks, across, queries, keys, features, columns;
    uint k_offset, v_offset, g_offset, level_offset, delta_offset, y_offset, causal;
    float scale;
    uint mask_offset, mask_repeats, mask_count, mask_step, mask_row, mask_column;
} p;

#if OF == 0
#define MINE p.queries
#define OTHERS p.keys
#else
#define MINE p.keys
#define OTHERS p.queries
#endif

float dot_of(uint s, uint t, uint count) {
    float product = 0.0;
    for (uint e = 0; e < count; ++e) product += a[s + e] * a[t + e];
    return product;
}

// By what the other side's element is multiplied in the gradient.
float factor(uint b, uint i, uint j) {
    const uint at = b * p.queries + i;
    const uint there = b * p.keys + j;
    const float level = a[p.level_offset + at];
    if (level == minus_infinity()) return 0.0;  // everything was masked
    float score = dot_of(at * p.features, p.k_offset + there * p.features, p.features) * p.scale;
#if MASK
    score += mask[p.mask_offset + b / p.mask_repeats % p.mask_count * p.mask_step + i * p.mask_row
        + j * p.mask_column];
#endif
    const float share = expf(score - level);
#if OF == 2
    return share;
#else
    if (share == 0.0) return 0.0;  // not nan, whatever comes back
    const float of_share = dot_of(p.g_offset + at * p.columns, p.v_offset + there * p.columns, p.columns);
    return p.scale * share * (of_share - a[p.delta_offset + at]);
#endif
}

void main() {
    const uint lane = gl_LocalInvocationID.x % LANES;
    const uint row = gl_LocalInvocationID.x / LANES;
#if OF == 0
    const uint from = p.k_offset;
    const uint columns = p.features;
#elif OF == 1
    const uint from = 0;
    const uint columns = p.features;
#else
    const uint from = p.g_offset;
    const uint columns = p.columns;
#endif
    for (uint block = gl_WorkGroupID.x; block < p.blocks; block += gl_NumWorkGroups.x) {
        const uint b = block / p.across;
        const uint first = block % p.across * ROWS;
        const uint mine = min(first + row, MINE - 1);
#if OF == 0
        const uint begin = 0;
        const uint end = p.causal != 0 ? min(p.keys, first + ROWS) : p.keys;
#else
        const uint begin = p.causal != 0 ? first / TILE * TILE : 0;
        const uint end = p.queries;
#endif
        for (uint base = 0; base < columns; base += WIDTH) {
            float found[DEPTH];
            for (uint d = 0; d < DEPTH; ++d) found[d] = 0.0;
            for (uint start = begin; start < end; start += TILE) {
                for (uint c = lane; c < TILE; c += LANES) {
                    const uint other = start + c;
#if OF == 0
                    const uint i = mine, j = other;
#else
                    const uint i = other, j = mine;
#endif
                    const bool there = other < OTHERS && (p.causal == 0 || j <= i);
                    tile[row * TILE + c] = there ? factor(b, i, j) : 0.0;
                }
                barrier();
                const uint count = min(TILE, OTHERS - start);
                for (uint c = 0; c < count; ++c) {
                    const float weight = tile[row * TILE + c];
                    const uint at = from + (b * OTHERS + start + c) * columns;
                    for (uint d = 0; d < DEPTH; ++d) {
                        const uint x = base + lane + d * LANES;
                        if (x < columns) found[d] += weight * a[at + x];
                    }
                }
                barrier();
            }
            if (first + row < MINE) {
                for (uint d = 0; d < DEPTH; ++d) {
                    const uint x = base + lane + d * LANES;
                    if (x < columns) y[p.y_offset + (b * MINE + mine) * columns + x] = found[d];
                }
            }
        }
    }
}
