#version 450
#extension GL_GOOGLE_include_directive : require
#if SUBGROUPS
#extension GL_KHR_shader_subgroup_shuffle : require
#endif
// What statistics.comp finds of slices of x (outer, channels, inner), and with SUMS what sums.comp finds of g and x. Here
// slices are rows, `cuts` of which are the inner elements of one channel. y (outer * cuts, 2, channels) has two numbers
// of each row. SUMS: folded has the mean and 1 / deviation, of each channel, or where p.each is not 0 of each so many
// elements that lie next to each other.
layout(push_constant) uniform Push {
    uint rows, size, inner, lanes, columns;
    uint channels, cuts, x_offset, g_offset, each, folds;
} p;
#include "rows.glsl"
#include "divide.glsl"

layout(binding = 0) readonly buffer X { VALUE x[]; };
#if SUMS
layout(binding = 1) readonly buffer G { VALUE g[]; };
layout(binding = 2) readonly buffer Folded { float folded[]; };
#endif
layout(binding = 1 + 2 * SUMS) writeonly buffer Y { float y[]; };

void main() {
    const uint start = row() * p.size;
    const uint end = row() < p.rows ? p.size : 0;
    const uvec2 plane = divided(row(), p.cuts);  // which it belongs to, and which of its rows this is
    const uvec2 place = divided(plane.x, p.channels);
    vec2 found;
#if SUMS
    const uint fold = p.each == 0 ? place.y : divided(start, p.each).x;
    const float mean = end == 0 ? 0.0 : folded[fold];
    const float scale = end == 0 ? 0.0 : folded[p.folds + fold];
    VALUE sum = VALUE(0.0), product = VALUE(0.0);
    for (uint i = first(); i < end; i += step()) {
        const VALUE gradient = g[p.g_offset + start + i];
        sum += gradient;
        product += gradient * ((x[p.x_offset + start + i] - mean) * scale);
    }
    found = vec2(total(sum), total(product));
#else
    VALUE sum = VALUE(0.0);
    for (uint i = first(); i < end; i += step()) sum += x[p.x_offset + start + i];
    const float count = float(p.size * WIDTH);
    const float mean = total(sum) / count;
    VALUE squares = VALUE(0.0);
    for (uint i = first(); i < end; i += step()) {
        const VALUE d = x[p.x_offset + start + i] - mean;
        squares += d * d;
    }
    found = vec2(mean, total(squares) / count);
#endif
    if (end != 0 && first() == 0) {
        const uint at = (place.x * p.cuts + plane.y) * 2 * p.channels + place.y;
        y[at] = found.x;
        y[at + p.channels] = found.y;
    }
}
