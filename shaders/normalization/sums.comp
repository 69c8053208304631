#version 450
#extension GL_GOOGLE_include_directive : require
// For each channel the sum of g, and of g times the normalised x, both of shape (outer, channels, inner), in slices as in
// statistics.comp: y (slices, 2, channels). folded has the mean and 1 / deviation, of each channel, or with ROWS of each
// p.row elements that lie next to each other. FOURS: elements are read four at once, all of one channel; inner, slice,
// row and the offsets of g and x count fours.
const uint SIZE = 128;
layout(local_size_x = 128) in;
layout(push_constant) uniform Push {
    uint outer, channels, inner, slice, slices, row, rows, g_offset, x_offset;
} p;
#include "divide.glsl"
#include "tree.glsl"

layout(binding = 0) readonly buffer G { VALUE g[]; };
layout(binding = 1) readonly buffer X { VALUE x[]; };
layout(binding = 2) readonly buffer Folded { float folded[]; };
layout(binding = 3) writeonly buffer Y { float y[]; };

void main() {
    const uint column = gl_LocalInvocationID.x % TX;
    const uint lane = gl_LocalInvocationID.x / TX;
    const uint blocks = (p.channels + TX - 1) / TX;
    const uint elements = p.outer * p.inner;
    for (uint block = gl_WorkGroupID.x; block < blocks * p.slices; block += gl_NumWorkGroups.x) {
        const uint channel = block % blocks * TX + column;
        const uint first = block / blocks * p.slice;
        const uint end = channel < p.channels ? min(first + p.slice, elements) : first;
        VALUE sum_each = VALUE(0.0);
        VALUE product_each = VALUE(0.0);
        for (uint t = first + lane; t < end; t += SIZE / TX) {
            const uvec2 place = divided(t, p.inner);
            const uint i = (place.x * p.channels + channel) * p.inner + place.y;
#if ROWS
            const uint q = divided(i, p.row).x;
#else
            const uint q = channel;
#endif
            const VALUE gradient = g[p.g_offset + i];
            sum_each += gradient;
            product_each += gradient * ((x[p.x_offset + i] - folded[q]) * folded[p.rows + q]);
        }
        const float sum = total(sum_of(sum_each));
        const float product = total(sum_of(product_each));
        if (lane == 0 && channel < p.channels) {
            const uint at = block / blocks * 2 * p.channels + channel;
            y[at] = sum;
            y[at + p.channels] = product;
        }
    }
}
