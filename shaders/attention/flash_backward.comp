#version 450
#extension GL_GOOGLE_include_directive : require
#include "flash.glsl"
// A gradient of flash.comp: of the queries (OPERAND 0), the keys (1) or the values (2). The scores are computed
// again. a is the concatenation of queries, keys, values, the results' gradients, both parts of the logsumexp of each
// row of scores, and for each query the delta that is subtracted from the gradients of its weights.
layout(binding = 0) readonly buffer A { float a[]; };
#if MASK
layout(binding = 1) readonly buffer Mask { float mask[]; };
#endif
layout(binding = MASK + 1) writeonly buffer Y { float y[]; };
layout(push_constant) uniform Push {
    uint blocks, blocks_per_batch, queries, keys, features, columns;
    uint k_offset, v_offset, g_offset, logsumexp_offset, rest_offset, delta_offset, y_offset, causal;
    float scale;
    uint mask_offset, mask_repeats, mask_count, mask_batch_stride, mask_row_stride, mask_column_stride;
} p;

#if OPERAND == 0
#define OWN_ROWS p.queries
#define OTHER_ROWS p.keys
#else
#define OWN_ROWS p.keys
#define OTHER_ROWS p.queries
#endif

float dot_of(uint s, uint t, uint count) {
    float product = 0.0;
    for (uint e = 0; e < count; ++e) product += a[s + e] * a[t + e];
    return product;
}

// The factor of the other side's row in the gradient: the weight, or the gradient of the score.
float factor(uint b, uint i, uint j) {
    const uint query = b * p.queries + i;
    const uint key = b * p.keys + j;
    const float logsumexp = a[p.logsumexp_offset + query];
    if (logsumexp == minus_infinity()) return 0.0;  // all keys were masked
    float score = dot_of(query * p.features, p.k_offset + key * p.features, p.features) * p.scale;
#if MASK
    score += mask[p.mask_offset + b / p.mask_repeats % p.mask_count * p.mask_batch_stride + i * p.mask_row_stride
        + j * p.mask_column_stride];
#endif
    precise float difference = score - logsumexp;
    const float weight = expf(difference - a[p.rest_offset + query]);
#if OPERAND == 2
    return weight;
#else
    if (weight == 0.0) return 0.0;  // 0 * nan is nan
    const float grad_weight = dot_of(p.g_offset + query * p.columns, p.v_offset + key * p.columns, p.columns);
    return p.scale * weight * (grad_weight - a[p.delta_offset + query]);
#endif
}

void main() {
    const uint lane = gl_LocalInvocationID.x % LANES;
    const uint row = gl_LocalInvocationID.x / LANES;
#if OPERAND == 0
    const uint source_offset = p.k_offset;
    const uint columns = p.features;
#elif OPERAND == 1
    const uint source_offset = 0;
    const uint columns = p.features;
#else
    const uint source_offset = p.g_offset;
    const uint columns = p.columns;
#endif
    for (uint block = gl_WorkGroupID.x; block < p.blocks; block += gl_NumWorkGroups.x) {
        const uint b = block / p.blocks_per_batch;
        const uint first = block % p.blocks_per_batch * ROWS;
        const uint own = min(first + row, OWN_ROWS - 1);
#if OPERAND == 0
        const uint begin = 0;
        const uint end = p.causal != 0 ? min(p.keys, first + ROWS) : p.keys;
#else
        const uint begin = p.causal != 0 ? first / TILE * TILE : 0;
        const uint end = p.queries;
#endif
        for (uint base = 0; base < columns; base += WIDTH) {
            float total[DEPTH];
            for (uint d = 0; d < DEPTH; ++d) total[d] = 0.0;
            for (uint start = begin; start < end; start += TILE) {
                for (uint c = lane; c < TILE; c += LANES) {
                    const uint other = start + c;
#if OPERAND == 0
                    const uint i = own, j = other;
#else
                    const uint i = other, j = own;
#endif
                    const bool visible = other < OTHER_ROWS && (p.causal == 0 || j <= i);
                    tile[row * TILE + c] = visible ? factor(b, i, j) : 0.0;
                }
                barrier();
                const uint count = min(TILE, OTHER_ROWS - start);
                for (uint c = 0; c < count; ++c) {
                    const float value = tile[row * TILE + c];
                    const uint row_start = source_offset + (b * OTHER_ROWS + start + c) * columns;
                    for (uint d = 0; d < DEPTH; ++d) {
                        const uint column = base + lane + d * LANES;
                        if (column < columns) total[d] += value * a[row_start + column];
                    }
                }
                barrier();
            }
            if (first + row < OWN_ROWS) {
                for (uint d = 0; d < DEPTH; ++d) {
                    const uint column = base + lane + d * LANES;
                    if (column < columns) y[p.y_offset + (b * OWN_ROWS + own) * columns + column] = total[d];
                }
            }
        }
    }
}
