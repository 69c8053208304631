#version 450
#extension GL_GOOGLE_include_directive : require
#if ARITHMETIC
#extension GL_KHR_shader_subgroup_arithmetic : require
#endif
// For each channel, the sum of g and of g times the normalised x, both of shape (outer, channels, inner), in slices as
// in statistics.comp: y (slices, 2, channels). folded holds mean and 1 / deviation, for each channel, or with ROWS for
// each p.row contiguous elements. FOURS: four elements of one channel are read at once; inner, slice, row and the
// offsets of g and x are in units of four.
const uint SIZE = 128;
layout(local_size_x = 128) in;
layout(push_constant) uniform Push {
    uint outer, channels, inner, slice, slices, row, rows, g_offset, x_offset;
#ifdef PROLOGUE
    PROLOGUE_PUSH
#endif
} p;
#include "divide.glsl"
#include "tree.glsl"

layout(binding = 0) readonly buffer G { VALUE g[]; };
layout(binding = 1) readonly buffer X { VALUE x[]; };
layout(binding = 2) readonly buffer Folded { float folded[]; };
layout(binding = 3) writeonly buffer Y { float y[]; };

#define SOURCE(i) g[p.g_offset + i]
#define SOURCE_FOURS FOURS
#include "prologue.glsl"

void main() {
    const uint column = gl_LocalInvocationID.x % COLUMNS;
    const uint lane = gl_LocalInvocationID.x / COLUMNS;
    const uint blocks = (p.channels + COLUMNS - 1) / COLUMNS;
    const uint elements = p.outer * p.inner;
    for (uint block = gl_WorkGroupID.x; block < blocks * p.slices; block += gl_NumWorkGroups.x) {
        const uint channel = block % blocks * COLUMNS + column;
        const uint first = block / blocks * p.slice;
        const uint end = channel < p.channels ? min(first + p.slice, elements) : first;
        VALUE sum_each = VALUE(0.0);
        VALUE product_each = VALUE(0.0);
        for (uint t = first + lane; t < end; t += SIZE / COLUMNS) {
            const uvec2 outer_inner = divided(t, p.inner);
            const uint i = (outer_inner.x * p.channels + channel) * p.inner + outer_inner.y;
#if ROWS
            const uint fold = divided(i, p.row).x;
#else
            const uint fold = channel;
#endif
            const VALUE gradient = prologue(i);
            sum_each += gradient;
            product_each += gradient * ((x[p.x_offset + i] - folded[fold]) * folded[p.rows + fold]);
        }
        const float sum = total(sum_of(sum_each));
        const float product = total(sum_of(product_each));
        if (lane == 0 && channel < p.channels) {
            const uint out_index = block / blocks * 2 * p.channels + channel;
            y[out_index] = sum;
            y[out_index + p.channels] = product;
        }
    }
}
