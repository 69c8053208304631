#version 450
#extension GL_GOOGLE_include_directive : require
#if SUBGROUPS
#extension GL_KHR_shader_subgroup_shuffle : require
#endif
// Mean and variance of rows of x (outer, channels, inner), as in statistics.comp; with SUMS the sums of sums.comp. The
// inner elements of a channel of one sample are cut into `cuts` rows; y (outer * cuts, 2, channels) has two numbers for
// each row. SUMS: folded holds mean and 1 / deviation, for each channel, or for each p.fold_elements contiguous elements
// where that is not 0.
layout(push_constant) uniform Push {
    uint rows, size, inner, lanes, columns;
    uint channels, cuts, x_offset, g_offset, fold_elements, folds;
#ifdef PROLOGUE
    PROLOGUE_PUSH
#endif
} p;
#include "rows.glsl"
#include "divide.glsl"

layout(binding = 0) readonly buffer X { VALUE x[]; };
#if SUMS
layout(binding = 1) readonly buffer G { VALUE g[]; };
layout(binding = 2) readonly buffer Folded { float folded[]; };
#endif
layout(binding = 1 + 2 * SUMS) writeonly buffer Y { float y[]; };

#if SUMS
#define SOURCE(i) g[p.g_offset + i]
#else
#define SOURCE(i) x[p.x_offset + i]
#endif
#define SOURCE_FOURS FOURS
#include "prologue.glsl"

void main() {
    const uint start = row() * p.size;
    const uint end = row() < p.rows ? p.size : 0;
    const uvec2 plane = divided(row(), p.cuts);  // the plane of this row, and its number there
    const uvec2 sample_and_channel = divided(plane.x, p.channels);
    vec2 result;
#if SUMS
    const uint fold = p.fold_elements == 0 ? sample_and_channel.y : divided(start, p.fold_elements).x;
    const float mean = end == 0 ? 0.0 : folded[fold];
    const float scale = end == 0 ? 0.0 : folded[p.folds + fold];
    VALUE sum = VALUE(0.0), product = VALUE(0.0);
    for (uint i = first(); i < end; i += step()) {
        const VALUE gradient = prologue(start + i);
        sum += gradient;
        product += gradient * ((x[p.x_offset + start + i] - mean) * scale);
    }
    result = vec2(total(sum), total(product));
#else
    VALUE sum = VALUE(0.0);
    for (uint i = first(); i < end; i += step()) sum += prologue(start + i);
    const float count = float(p.size * WIDTH);
    const float mean = total(sum) / count;
    VALUE squares = VALUE(0.0);
    for (uint i = first(); i < end; i += step()) {
        const VALUE d = prologue(start + i) - mean;
        squares += d * d;
    }
    result = vec2(mean, total(squares) / count);
#endif
    if (end != 0 && first() == 0) {
        const uint out_index = (sample_and_channel.x * p.cuts + plane.y) * 2 * p.channels + sample_and_channel.y;
        y[out_index] = result.x;
        y[out_index + p.channels] = result.y;
    }
}
