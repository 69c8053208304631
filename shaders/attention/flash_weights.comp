#version 450
#extension GL_GOOGLE_include_directive : require
// Rows of scores become shares: softmax(scale * s + mask), and the logarithm of each row's sum of exponentials. With
// BACKWARD, the shares are computed from those logarithms, and what lies in `t`, the gradients of the shares, becomes those
// of the scores. One invocation takes a row, so that nothing is shared and nobody waits: for CPUs, where both are slow.
// FOURS: rows are a multiple of four long and read in vectors.
#include "math/exponential.glsl"
#include "math/logarithm.glsl"
layout(local_size_x = 32) in;

#if FOURS
#define VALUE vec4
#define WIDE 4
#else
#define VALUE float
#define WIDE 1
#endif
#if MASK
layout(binding = 0) readonly buffer Mask { float mask[]; };
#endif
#if BACKWARD
layout(binding = MASK) readonly buffer Levels { float levels[]; };  // and behind them what is taken off the gradients
layout(binding = MASK + 1) buffer Scores { VALUE s[]; };
layout(binding = MASK + 2) buffer Gradients { VALUE t[]; };
#else
layout(binding = MASK) buffer Scores { VALUE s[]; };
layout(binding = MASK + 1) writeonly buffer Levels { float levels[]; };
#endif
layout(push_constant) uniform Push {
    uint rows, queries, keys, first;  // `first`: the number of the first row among those of all batches
    uint level_offset, delta_offset, causal;
    float scale;
    uint mask_offset, mask_repeats, mask_count, mask_step, mask_row, mask_column;
} p;

#if MASK
uint mask_start;

float mask_at(uint j) {
    return mask[mask_start + j * p.mask_column];
}
#endif

// The scores of keys j, j + 1, ... of query i, without what it may not see.
VALUE score(uint at, uint i, uint j) {
    VALUE found = s[at] * p.scale;
#if MASK && FOURS
    found += vec4(mask_at(j), mask_at(j + 1), mask_at(j + 2), mask_at(j + 3));
#elif MASK
    found += mask_at(j);
#endif
    const float never = -infinity();
#if FOURS
    if (p.causal != 0) found = mix(found, vec4(never), greaterThan(uvec4(j, j + 1, j + 2, j + 3), uvec4(i)));
#else
    if (p.causal != 0 && j > i) found = never;
#endif
    return found;
}

VALUE exponential(VALUE x) {
#if FOURS
    return vec4(expf(x.x), expf(x.y), expf(x.z), expf(x.w));
#else
    return expf(x);
#endif
}

void main() {
    const uint step = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
    const uint length = p.keys / WIDE;
    for (uint row = gl_GlobalInvocationID.x; row < p.rows; row += step) {
        const uint number = p.first + row;
        const uint i = number % p.queries;
        const uint start = row * length;
#if MASK
        mask_start = p.mask_offset + number / p.queries / p.mask_repeats % p.mask_count * p.mask_step + i * p.mask_row;
#endif
        // Behind these, causal queries see nothing.
        const uint end = p.causal != 0 ? min(length, i / WIDE + 1) : length;
#if BACKWARD
        const float level = levels[p.level_offset + number];
        const float delta = levels[p.delta_offset + number];
        const bool blind = level == -infinity();  // everything was masked
        for (uint c = 0; c < end; ++c) {
            const uint at = start + c;
            VALUE share = blind ? VALUE(0.0) : exponential(score(at, i, c * WIDE) - level);
            VALUE back = p.scale * share * (t[at] - delta);
#if FOURS
            back = mix(back, vec4(0.0), equal(share, vec4(0.0)));  // not nan, whatever comes back
#else
            if (share == 0.0) back = 0.0;
#endif
            s[at] = share;
            t[at] = back;
        }
        for (uint c = end; c < length; ++c) {
            s[start + c] = VALUE(0.0);
            t[start + c] = VALUE(0.0);
        }
#else
        float high = -infinity();
        for (uint c = 0; c < end; ++c) {
            const VALUE here = score(start + c, i, c * WIDE);
#if FOURS
            high = larger(larger(larger(high, here.x), here.y), larger(here.z, here.w));
#else
            high = larger(high, here);
#endif
        }
        const float from = high == -infinity() ? 0.0 : high;
        VALUE sums = VALUE(0.0);
        for (uint c = 0; c < end; ++c) {
            const VALUE share = exponential(score(start + c, i, c * WIDE) - from);
            s[start + c] = share;
            sums += share;
        }
#if FOURS
        const float sum = (sums.x + sums.y) + (sums.z + sums.w);
#else
        const float sum = sums;
#endif
        const float factor = sum == 0.0 ? 0.0 : 1.0 / sum;
        for (uint c = 0; c < end; ++c) s[start + c] *= factor;
        for (uint c = end; c < length; ++c) s[start + c] = VALUE(0.0);
        levels[p.level_offset + number] = sum == 0.0 ? -infinity() : high + logf(sum);
#endif
    }
}
