#version 450
#extension GL_GOOGLE_include_directive : require
// For each channel the sum of g, and of g times the normalised x, both of shape (outer, channels, inner), in slices as in
// statistics.comp: y (slices, 2, channels). folded has the mean and 1 / deviation, of each channel, or with ROWS of each
// p.row elements that lie next to each other.
const uint SIZE = 128;
layout(local_size_x = 128) in;
layout(binding = 0) readonly buffer G { float g[]; };
layout(binding = 1) readonly buffer X { float x[]; };
layout(binding = 2) readonly buffer Folded { float folded[]; };
layout(binding = 3) writeonly buffer Y { float y[]; };
layout(push_constant) uniform Push {
    uint outer, channels, inner, slice, slices, row, rows, g_offset, x_offset;
} p;
#include "tree.glsl"

void main() {
    const uint column = gl_LocalInvocationID.x % TX;
    const uint lane = gl_LocalInvocationID.x / TX;
    const uint blocks = (p.channels + TX - 1) / TX;
    const uint elements = p.outer * p.inner;
    for (uint block = gl_WorkGroupID.x; block < blocks * p.slices; block += gl_NumWorkGroups.x) {
        const uint channel = block % blocks * TX + column;
        const uint first = block / blocks * p.slice;
        const uint end = channel < p.channels ? min(first + p.slice, elements) : first;
        float sum = 0.0;
        float product = 0.0;
        for (uint t = first + lane; t < end; t += SIZE / TX) {
            const uint i = (t / p.inner * p.channels + channel) * p.inner + t % p.inner;
#if ROWS
            const uint q = i / p.row;
#else
            const uint q = channel;
#endif
            const float gradient = g[p.g_offset + i];
            sum += gradient;
            product += gradient * ((x[p.x_offset + i] - folded[q]) * folded[p.rows + q]);
        }
        sum = total(sum);
        product = total(product);
        if (lane == 0 && channel < p.channels) {
            const uint at = block / blocks * 2 * p.channels + channel;
            y[at] = sum;
            y[at + p.channels] = product;
        }
    }
}
