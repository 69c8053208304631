#version 450
#extension GL_GOOGLE_include_directive : require
#include "flash.glsl"
// y[b, i] = sum over j of softmax(scale * q[b, i] . k[b, j] + mask) v[b, j], and behind all of these the logarithm of each
// row's sum of exponentials. The sum is carried along with the largest score so far (Milakov and Gimelshein,
// arXiv:1805.02867; Dao et al., arXiv:2205.14135). Keys (batch, keys, features) and behind them the values are in one
// buffer, which takes one less than there are on every device.
layout(binding = 0) readonly buffer Q { float q[]; };
layout(binding = 1) readonly buffer KV { float kv[]; };
#if MASK
layout(binding = 2) readonly buffer Mask { float mask[]; };
#endif
layout(binding = MASK + 2) writeonly buffer Y { float y[]; };
layout(push_constant) uniform Push {
    uint blocks, across, queries, keys, features, columns;  // `across` blocks of rows make one batch
    uint q_offset, v_offset, level_offset, causal;
    float scale;
    uint mask_offset, mask_repeats, mask_count, mask_step, mask_row, mask_column;
} p;

void main() {
    const uint lane = gl_LocalInvocationID.x % LANES;
    const uint row = gl_LocalInvocationID.x / LANES;
    for (uint block = gl_WorkGroupID.x; block < p.blocks; block += gl_NumWorkGroups.x) {
        const uint b = block / p.across;
        const uint first = block % p.across * ROWS;
        const uint i = min(first + row, p.queries - 1);
        const uint q_start = p.q_offset + (b * p.queries + i) * p.features;
        const uint end = p.causal != 0 ? min(p.keys, first + ROWS) : p.keys;
        for (uint base = 0; base < p.columns; base += WIDTH) {
            float high = minus_infinity();
            float sum = 0.0;
            float found[DEPTH];
            for (uint d = 0; d < DEPTH; ++d) found[d] = 0.0;
            for (uint start = 0; start < end; start += TILE) {
                for (uint c = lane; c < TILE; c += LANES) {
                    const uint j = start + c;
                    float score = minus_infinity();
                    if (j < p.keys && (p.causal == 0 || j <= i)) {
                        const uint k_start = (b * p.keys + j) * p.features;
                        float product = 0.0;
                        for (uint e = 0; e < p.features; ++e) product += q[q_start + e] * kv[k_start + e];
                        score = product * p.scale;
#if MASK
                        score += mask[p.mask_offset + b / p.mask_repeats % p.mask_count * p.mask_step
                            + i * p.mask_row + j * p.mask_column];
#endif
                    }
                    tile[row * TILE + c] = score;
                }
                barrier();
                float top = high;
                for (uint c = 0; c < TILE; ++c) top = larger(top, tile[row * TILE + c]);
                const float from = top == minus_infinity() ? 0.0 : top;
                barrier();
                for (uint c = lane; c < TILE; c += LANES) tile[row * TILE + c] = expf(tile[row * TILE + c] - from);
                barrier();
                const float left = expf(high - from);
                high = top;
                sum *= left;
                for (uint d = 0; d < DEPTH; ++d) found[d] *= left;
                const uint count = min(TILE, p.keys - start);
                for (uint c = 0; c < count; ++c) {
                    const float share = tile[row * TILE + c];
                    const uint v_start = p.v_offset + (b * p.keys + start + c) * p.columns;
                    sum += share;
                    for (uint d = 0; d < DEPTH; ++d) {
                        const uint x = base + lane + d * LANES;
                        if (x < p.columns) found[d] += share * kv[v_start + x];
                    }
                }
                barrier();
            }
            if (first + row < p.queries) {
                const uint at = b * p.queries + i;
                for (uint d = 0; d < DEPTH; ++d) {
                    const uint x = base + lane + d * LANES;
                    if (x < p.columns) y[at * p.columns + x] = sum == 0.0 ? 0.0 : found[d] / sum;
                }
                if (base == 0 && lane == 0) {
                    y[p.level_offset + at] = sum == 0.0 ? minus_infinity() : high + logf(sum);
                }
            }
        }
    }
}
