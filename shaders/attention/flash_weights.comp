#version 450
#extension GL_GOOGLE_include_directive : require
// Replaces rows of scores by attention weights, softmax(scale * s + mask), and stores both parts of the logsumexp of each row. With
// BACKWARD, the weights are computed from the logsumexp, and the gradients of the weights in t are replaced by those
// of the scores, weight * (gradient - delta), where delta is the product of a row's result and its gradient, less the
// gradient of its logsumexp. One invocation computes a row, without shared memory and barriers,
// which are slow on CPUs. VEC4: the length of rows is a multiple of four.
#include "logsumexp.glsl"
layout(local_size_x = 32) in;

#if VEC4
#define VALUE vec4
#define WIDTH 4
#else
#define VALUE float
#define WIDTH 1
#endif
#if MASK
layout(binding = 0) readonly buffer Mask { float mask[]; };
#endif
#if BACKWARD
layout(binding = MASK) readonly buffer Saved { float saved[]; };  // results, then the logsumexp and its rest of each row
#if MASK
#define g saved  // devices may bind no more than four buffers
#else
layout(binding = 1) readonly buffer SavedGradients { float g[]; };  // of the results and logsumexps
#endif
layout(binding = 2) buffer Scores { VALUE s[]; };
layout(binding = 3) buffer Gradients { VALUE t[]; };
const uint NO_GRADIENT = 0xFFFFFFFF;
const uint BLOCK = 64;  // products that are added up apart, so that long sums keep their digits
#else
layout(binding = MASK) buffer Scores { VALUE s[]; };
layout(binding = MASK + 1) writeonly buffer RowTerms { float row_terms[]; };
#endif
layout(push_constant) uniform Push {
    uint rows, queries, keys, first;  // first: index of the first row in all batches
    uint logsumexp_offset, rest_offset, causal;
    float scale;
    uint mask_offset, mask_repeats, mask_count, mask_batch_stride, mask_row_stride, mask_column_stride;
#if BACKWARD
    uint columns, result_offset, gradient_offset, logsumexp_gradient_offset;
#endif
} p;

#if BACKWARD
// The product of a row's result and its gradient, less the gradient of the row's logsumexp, if there is one.
float delta_of(uint row) {
    const uint result = p.result_offset + row * p.columns;
    const uint gradient = p.gradient_offset + row * p.columns;
    float sum = 0.0;
    for (uint first = 0; first < p.columns; first += BLOCK) {
        float block = 0.0;
        const uint last = min(first + BLOCK, p.columns);
        for (uint c = first; c < last; ++c) block += saved[result + c] * g[gradient + c];
        sum += block;
    }
    return p.logsumexp_gradient_offset == NO_GRADIENT ? sum : sum - g[p.logsumexp_gradient_offset + row];
}
#endif

#if MASK
uint mask_start;

float mask_value(uint j) {
    return mask[mask_start + j * p.mask_column_stride];
}
#endif

// The scores of keys j, j + 1, ... for query i with the mask; -inf for keys that it does not attend to.
VALUE score(uint element, uint i, uint j) {
    VALUE result = s[element] * p.scale;
#if MASK && VEC4
    result += vec4(mask_value(j), mask_value(j + 1), mask_value(j + 2), mask_value(j + 3));
#elif MASK
    result += mask_value(j);
#endif
    const float excluded = -infinity();
#if VEC4
    if (p.causal != 0) result = mix(result, vec4(excluded), greaterThan(uvec4(j, j + 1, j + 2, j + 3), uvec4(i)));
#else
    if (p.causal != 0 && j > i) result = excluded;
#endif
    return result;
}

VALUE exponential(VALUE x) {
#if VEC4
    return vec4(expf(x.x), expf(x.y), expf(x.z), expf(x.w));
#else
    return expf(x);
#endif
}

void main() {
    const uint step = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
    const uint length = p.keys / WIDTH;
    for (uint row = gl_GlobalInvocationID.x; row < p.rows; row += step) {
        const uint global_row = p.first + row;
        const uint i = global_row % p.queries;
        const uint start = row * length;
#if MASK
        mask_start = p.mask_offset + global_row / p.queries / p.mask_repeats % p.mask_count * p.mask_batch_stride
            + i * p.mask_row_stride;
#endif
        // A causal query attends to no key behind `end`.
        const uint end = p.causal != 0 ? min(length, i / WIDTH + 1) : length;
#if BACKWARD
        const float logsumexp = saved[p.logsumexp_offset + global_row];
        const float rest = saved[p.rest_offset + global_row];
        const float delta = delta_of(global_row);
        const bool masked = logsumexp == -infinity();  // all keys were masked
        for (uint c = 0; c < end; ++c) {
            const uint element = start + c;
            precise VALUE difference = score(element, i, c * WIDTH) - logsumexp;
            VALUE weight = masked ? VALUE(0.0) : exponential(difference - rest);
#if VEC4
            // A query of nan must not spoil the keys that it does not attend to.
            const uint j = c * WIDTH;
            if (p.causal != 0) weight = mix(weight, vec4(0.0), greaterThan(uvec4(j, j + 1, j + 2, j + 3), uvec4(i)));
#endif
            VALUE gradient = p.scale * weight * (t[element] - delta);
#if VEC4
            gradient = mix(gradient, vec4(0.0), equal(weight, vec4(0.0)));  // 0 * nan is nan
#else
            if (weight == 0.0) gradient = 0.0;
#endif
            s[element] = weight;
            t[element] = gradient;
        }
        for (uint c = end; c < length; ++c) {
            s[start + c] = VALUE(0.0);
            t[start + c] = VALUE(0.0);
        }
#else
        float maximum = -infinity();
        for (uint c = 0; c < end; ++c) {
            const VALUE values = score(start + c, i, c * WIDTH);
#if VEC4
            maximum = larger(larger(larger(maximum, values.x), values.y), larger(values.z, values.w));
#else
            maximum = larger(maximum, values);
#endif
        }
        const float shift = maximum == -infinity() ? 0.0 : maximum;
        VALUE sums = VALUE(0.0);
        for (uint c = 0; c < end; ++c) {
            const VALUE weight = exponential(score(start + c, i, c * WIDTH) - shift);
            s[start + c] = weight;
            sums += weight;
        }
#if VEC4
        const float sum = (sums.x + sums.y) + (sums.z + sums.w);
#else
        const float sum = sums;
#endif
        const float factor = sum == 0.0 ? 0.0 : 1.0 / sum;
        for (uint c = 0; c < end; ++c) s[start + c] *= factor;
        for (uint c = end; c < length; ++c) s[start + c] = VALUE(0.0);
        const vec2 parts = logsumexp_parts(maximum, sum);
        row_terms[p.logsumexp_offset + global_row] = parts.x;
        row_terms[p.rest_offset + global_row] = parts.y;
#endif
    }
}
