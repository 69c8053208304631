#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
// A gradient of flash.comp: of the queries (OPERAND 0), the keys (1) or the values (2). The scores are computed
// again. a is the concatenation of queries, keys, values, the results' gradients, both parts of the logsumexp of each
// row of scores, and for each query the delta that is subtracted from the gradients of its weights. FOURS: features and
// columns are multiples of four.
#if FOURS
#define VALUE vec4
#define ONE(at) a[(at) / 4][(at) % 4]
#else
#define VALUE float
#define ONE(at) a[at]
#endif
layout(binding = 0) readonly buffer A { VALUE a[]; };
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
#define OWN_DATA a
#define OTHER_DATA a
#define SOURCE_DATA a
#include "flash.glsl"

vec4 four_of(uint start, uvec4 rows) {
    const uvec4 at = start + rows;
    return vec4(ONE(at.x), ONE(at.y), ONE(at.z), ONE(at.w));
}

// The factors of other row `other` in the gradients of the own rows: the weights, or the gradients of the scores. `product`
// has the scores without mask and scale, `grad_weight` the gradients of the weights.
vec4 factors_of(vec4 product, vec4 grad_weight, uint b, uvec4 own, uint other) {
#if OPERAND == 0
    const uvec4 i = own, j = uvec4(other);
#else
    const uvec4 i = uvec4(other), j = own;
#endif
    const uvec4 query = min(i, uvec4(p.queries - 1)), key = min(j, uvec4(p.keys - 1));
    bvec4 visible = lessThanEqual(j, p.causal != 0 ? min(i, uvec4(p.keys - 1)) : uvec4(p.keys - 1));
    const uint row_start = b * p.queries;
    const vec4 logsumexp = four_of(p.logsumexp_offset + row_start, query);
    vec4 score = product * p.scale;
#if MASK
    const uint mask_start = p.mask_offset + b / p.mask_repeats % p.mask_count * p.mask_batch_stride;
    const uvec4 at = mask_start + query * p.mask_row_stride + key * p.mask_column_stride;
    score += vec4(mask[at.x], mask[at.y], mask[at.z], mask[at.w]);
#endif
    precise vec4 difference = score - logsumexp;
    vec4 weight = exponential(difference - four_of(p.rest_offset + row_start, query));
    // Zero for queries and keys behind the last one, and where all keys were masked.
    weight = mix(vec4(0.0), weight, visible);
    weight = mix(weight, vec4(0.0), equal(logsumexp, vec4(minus_infinity())));
    weight = mix(vec4(0.0), weight, lessThan(i, uvec4(p.queries)));
#if OPERAND == 2
    return weight;
#else
    const vec4 gradient = p.scale * weight * (grad_weight - four_of(p.delta_offset + row_start, query));
    return mix(gradient, vec4(0.0), equal(weight, vec4(0.0)));  // 0 * nan is nan
#endif
}

void main() {
#if OPERAND == 0
    const uint own_rows = p.queries, other_rows = p.keys, columns = p.features;
    const uint own_offset = 0, other_offset = p.k_offset, source_offset = p.k_offset;
    const uint own_grad_offset = p.g_offset, other_grad_offset = p.v_offset;
#else
    const uint own_rows = p.keys, other_rows = p.queries;
    const uint own_offset = p.k_offset, other_offset = 0;
    const uint own_grad_offset = p.v_offset, other_grad_offset = p.g_offset;
#if OPERAND == 1
    const uint source_offset = 0, columns = p.features;
#else
    const uint source_offset = p.g_offset, columns = p.columns;
#endif
#endif
    for (uint block = gl_WorkGroupID.x; block < p.blocks; block += gl_NumWorkGroups.x) {
        const uint b = block / p.blocks_per_batch;
        const uint first = block % p.blocks_per_batch * OWN;
        const uvec4 own = first + 4 * own_four_of_me() + uvec4(0, 1, 2, 3);
        const uint own_start = b * own_rows, other_start = b * other_rows;
#if OPERAND == 0
        const uint begin = 0;
        const uint end = p.causal != 0 ? min(p.keys, first + OWN) : p.keys;
#else
        const uint begin = p.causal != 0 ? first / OTHER * OTHER : 0;
        const uint end = p.queries;
#endif
        for (uint base = 0; base < columns; base += WIDTH) {
            clear_total();
            for (uint start = begin; start < end; start += OTHER) {
                vec4 s[4 * MAX_PARTS], t[4 * MAX_PARTS];
                multiply(
                    s, own_offset + own_start * p.features, first, own_rows,
                    other_offset + other_start * p.features, start, other_rows, p.features);
#if OPERAND == 2
                UNROLL(k, 4 * PARTS) t[k] = vec4(0.0);
#else
                multiply(
                    t, own_grad_offset + own_start * p.columns, first, own_rows,
                    other_grad_offset + other_start * p.columns, start, other_rows, p.columns);
#endif
                UNROLL(k, 4 * PARTS) s[k] = factors_of(s[k], t[k], b, own, start + other_row_of(k));
                UNROLL(part, PARTS) {
                    if (start + part * PART < end) {
                        const vec4 mine[4] = vec4[4](s[4 * part], s[4 * part + 1], s[4 * part + 2], s[4 * part + 3]);
                        const uint source = source_offset + other_start * columns;
                        add_part(mine, source, start + part * PART, other_rows, base, columns);
                    }
                }
            }
            UNROLL(r, 4) {
                if (own[r] < own_rows) {
                    UNROLL(d, DEPTH) UNROLL(e, 4) {
                        const uint column = base + 4 * (part_four_of_me() + PART_FOURS * d) + e;
                        const uint at = p.y_offset + (b * own_rows + own[r]) * columns + column;
                        if (column < columns) y[at] = total[4 * d + r][e];
                    }
                }
            }
        }
    }
}
