#version 450
#extension GL_GOOGLE_include_directive : require
#include "flash.glsl"
// FlashAttention: y[b, i] = sum over j of softmax(scale * q[b, i] . k[b, j] + mask) v[b, j], followed by the
// logsumexp of each row of scores, and by what rounding took from it. The sum is rescaled whenever the largest score so far grows (Milakov and
// Gimelshein, arXiv:1805.02867; Dao et al., arXiv:2205.14135). Keys (batch, keys, features) and then the values share
// a buffer: one more would exceed what every device can bind.
layout(binding = 0) readonly buffer Q { float q[]; };
layout(binding = 1) readonly buffer KV { float kv[]; };
#if MASK
layout(binding = 2) readonly buffer Mask { float mask[]; };
#endif
layout(binding = MASK + 2) writeonly buffer Y { float y[]; };
layout(push_constant) uniform Push {
    uint blocks, blocks_per_batch, queries, keys, features, columns;  // a block is ROWS queries
    uint q_offset, v_offset, logsumexp_offset, rest_offset, causal;
    float scale;
    uint mask_offset, mask_repeats, mask_count, mask_batch_stride, mask_row_stride, mask_column_stride;
} p;

void main() {
    const uint lane = gl_LocalInvocationID.x % LANES;
    const uint row = gl_LocalInvocationID.x / LANES;
    for (uint block = gl_WorkGroupID.x; block < p.blocks; block += gl_NumWorkGroups.x) {
        const uint b = block / p.blocks_per_batch;
        const uint first = block % p.blocks_per_batch * ROWS;
        const uint i = min(first + row, p.queries - 1);
        const uint q_start = p.q_offset + (b * p.queries + i) * p.features;
        const uint end = p.causal != 0 ? min(p.keys, first + ROWS) : p.keys;
        for (uint base = 0; base < p.columns; base += WIDTH) {
            float maximum = minus_infinity();
            float sum = 0.0;
            float total[DEPTH];
            for (uint d = 0; d < DEPTH; ++d) total[d] = 0.0;
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
                        score += mask[p.mask_offset + b / p.mask_repeats % p.mask_count * p.mask_batch_stride
                            + i * p.mask_row_stride + j * p.mask_column_stride];
#endif
                    }
                    tile[row * TILE + c] = score;
                }
                barrier();
                float new_maximum = maximum;
                for (uint c = 0; c < TILE; ++c) new_maximum = larger(new_maximum, tile[row * TILE + c]);
                const float shift = new_maximum == minus_infinity() ? 0.0 : new_maximum;
                barrier();
                for (uint c = lane; c < TILE; c += LANES) tile[row * TILE + c] = expf(tile[row * TILE + c] - shift);
                barrier();
                const float correction = expf(maximum - shift);
                maximum = new_maximum;
                sum *= correction;
                for (uint d = 0; d < DEPTH; ++d) total[d] *= correction;
                const uint count = min(TILE, p.keys - start);
                for (uint c = 0; c < count; ++c) {
                    const float weight = tile[row * TILE + c];
                    const uint v_start = p.v_offset + (b * p.keys + start + c) * p.columns;
                    sum += weight;
                    for (uint d = 0; d < DEPTH; ++d) {
                        const uint column = base + lane + d * LANES;
                        if (column < p.columns) total[d] += weight * kv[v_start + column];
                    }
                }
                barrier();
            }
            if (first + row < p.queries) {
                const uint query = b * p.queries + i;
                for (uint d = 0; d < DEPTH; ++d) {
                    const uint column = base + lane + d * LANES;
                    if (column < p.columns) y[query * p.columns + column] = sum == 0.0 ? 0.0 : total[d] / sum;
                }
                if (base == 0 && lane == 0) {
                    const vec2 parts = logsumexp_parts(maximum, sum);
                    y[p.logsumexp_offset + query] = parts.x;
                    y[p.rest_offset + query] = parts.y;
                }
            }
        }
    }
}
