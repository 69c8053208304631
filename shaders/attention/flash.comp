#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
// FlashAttention: y[b, i] = sum over j of softmax(scale * q[b, i] . k[b, j] + mask) v[b, j], followed by the
// logsumexp of each row of scores, and by what rounding took from it. The sum is rescaled whenever the largest score so far
// grows (Milakov and Gimelshein, arXiv:1805.02867; Dao et al., arXiv:2205.14135). Keys (batch, keys, features) and then
// the values share a buffer: one more would exceed what every device can bind. FOURS: features, columns and the offsets of
// both are multiples of four.
#if FOURS
#define VALUE vec4
#else
#define VALUE float
#endif
layout(binding = 0) readonly buffer Q { VALUE q[]; };
layout(binding = 1) readonly buffer KV { VALUE kv[]; };
#if MASK
layout(binding = 2) readonly buffer Mask { float mask[]; };
#endif
layout(binding = MASK + 2) writeonly buffer Y { float y[]; };
layout(push_constant) uniform Push {
    uint blocks, blocks_per_batch, queries, keys, features, columns;  // a block is OWN queries
    uint q_offset, v_offset, logsumexp_offset, rest_offset, causal;
    float scale;
    uint mask_offset, mask_repeats, mask_count, mask_batch_stride, mask_row_stride, mask_column_stride;
} p;
#define OWN_DATA q
#define OTHER_DATA kv
#define SOURCE_DATA kv
#include "flash.glsl"

// The largest of all invocations that have the same own rows; the sum of their values.
vec4 largest(vec4 mine) {
    barrier();
    staged[part_four_of_me() * OWN_PITCH + own_four_of_me()] = mine;
    barrier();
    UNROLL(c, PART_FOURS) mine = larger(mine, staged[c * OWN_PITCH + own_four_of_me()]);
    return mine;
}

vec4 summed(vec4 mine) {
    barrier();
    staged[part_four_of_me() * OWN_PITCH + own_four_of_me()] = mine;
    barrier();
    vec4 result = vec4(0.0);
    UNROLL(c, PART_FOURS) result += staged[c * OWN_PITCH + own_four_of_me()];
    return result;
}

void main() {
    for (uint block = gl_WorkGroupID.x; block < p.blocks; block += gl_NumWorkGroups.x) {
        const uint b = block / p.blocks_per_batch;
        const uint first = block % p.blocks_per_batch * OWN;
        const uvec4 i = first + 4 * own_four_of_me() + uvec4(0, 1, 2, 3);
        const uint q_start = p.q_offset + b * p.queries * p.features;
        const uint k_start = b * p.keys * p.features;
        const uint v_start = p.v_offset + b * p.keys * p.columns;
#if MASK
        const uint mask_start = p.mask_offset + b / p.mask_repeats % p.mask_count * p.mask_batch_stride;
        const uvec4 mask_rows = mask_start + min(i, uvec4(p.queries - 1)) * p.mask_row_stride;
#endif
        const uint end = p.causal != 0 ? min(p.keys, first + OWN) : p.keys;
        for (uint base = 0; base < p.columns || base == 0; base += WIDTH) {
            vec4 maximum = vec4(minus_infinity());
            vec4 sum = vec4(0.0);
            clear_total();
            for (uint start = 0; start < end; start += OTHER) {
                vec4 s[4 * MAX_PARTS];
                multiply(s, q_start, first, p.queries, k_start, start, p.keys, p.features);
                vec4 high = vec4(minus_infinity());
                UNROLL(k, 4 * PARTS) {
                    const uint j = start + other_row_of(k);
                    vec4 score = s[k] * p.scale;
#if MASK
                    const uvec4 at = mask_rows + min(j, p.keys - 1) * p.mask_column_stride;
                    score += vec4(mask[at.x], mask[at.y], mask[at.z], mask[at.w]);
#endif
                    const uvec4 last = p.causal != 0 ? min(i, uvec4(p.keys - 1)) : uvec4(p.keys - 1);
                    s[k] = mix(vec4(minus_infinity()), score, lessThanEqual(uvec4(j), last));
                    high = larger(high, s[k]);
                }
                const vec4 new_maximum = larger(maximum, largest(high));
                const vec4 shift = mix(new_maximum, vec4(0.0), equal(new_maximum, vec4(minus_infinity())));
                const vec4 correction = exponential(maximum - shift);
                maximum = new_maximum;
                sum *= correction;
                UNROLL(d, DEPTH) UNROLL(r, 4) total[4 * d + r] *= correction[r];
                UNROLL(k, 4 * PARTS) {
                    s[k] = exponential(s[k] - shift);
                    sum += s[k];
                }
                UNROLL(part, PARTS) {
                    if (p.columns > 0 && start + part * PART < end) {
                        const vec4 weights[4] = vec4[4](s[4 * part], s[4 * part + 1], s[4 * part + 2], s[4 * part + 3]);
                        add_part(weights, v_start, start + part * PART, p.keys, base, p.columns);
                    }
                }
            }
            sum = summed(sum);
            UNROLL(r, 4) {
                if (i[r] < p.queries) {
                    const uint query = b * p.queries + i[r];
                    UNROLL(d, DEPTH) UNROLL(e, 4) {
                        const uint column = base + 4 * (part_four_of_me() + PART_FOURS * d) + e;
                        const float value = sum[r] == 0.0 ? 0.0 : total[4 * d + r][e] / sum[r];
                        if (column < p.columns) y[query * p.columns + column] = value;
                    }
                    if (base == 0 && part_four_of_me() == 0) {
                        const vec2 parts = logsumexp_parts(maximum[r], sum[r]);
                        y[p.logsumexp_offset + query] = parts.x;
                        y[p.rest_offset + query] = parts.y;
                    }
                }
            }
        }
    }
}
