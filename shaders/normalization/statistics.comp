#version 450
#extension GL_GOOGLE_include_directive : require
// Mean and variance of x (outer, groups, inner) over the outer and the inner axis, for each group, in slices: the
// elements of a group are cut into pieces of p.slice, and y (slices, 2, groups) has mean and variance of each piece, which
// statistics_combine.comp puts together.
// FOURS: elements are read four at once, all of one group; inner, slice and offset count fours.
// A workgroup takes TX groups next to each other, so that with inner = 1 its reads lie next to each other too.
const uint SIZE = 128;
layout(local_size_x = 128) in;
layout(push_constant) uniform Push {
    uint outer, groups, inner, slice, slices, x_offset;
} p;
#include "divide.glsl"
#include "tree.glsl"

layout(binding = 0) readonly buffer X { VALUE x[]; };
layout(binding = 1) writeonly buffer Y { float y[]; };

VALUE element(uint t, uint group) {
    const uvec2 place = divided(t, p.inner);
    return x[p.x_offset + (place.x * p.groups + group) * p.inner + place.y];
}

void main() {
    const uint column = gl_LocalInvocationID.x % TX;
    const uint row = gl_LocalInvocationID.x / TX;
    const uint blocks = (p.groups + TX - 1) / TX;
    const uint elements = p.outer * p.inner;
    for (uint block = gl_WorkGroupID.x; block < blocks * p.slices; block += gl_NumWorkGroups.x) {
        const uint group = block % blocks * TX + column;
        const uint first = block / blocks * p.slice;
        const uint end = group < p.groups ? min(first + p.slice, elements) : first;
        const float count = float((min(first + p.slice, elements) - first) * WIDTH);
        VALUE sum = VALUE(0.0);
        for (uint t = first + row; t < end; t += SIZE / TX) sum += element(t, group);
        const float mean = total(sum_of(sum)) / count;
        VALUE squares_each = VALUE(0.0);
        for (uint t = first + row; t < end; t += SIZE / TX) {
            const VALUE d = element(t, group) - mean;
            squares_each += d * d;
        }
        const float squares = total(sum_of(squares_each));
        if (row == 0 && group < p.groups) {
            const uint at = block / blocks * 2 * p.groups + group;
            y[at] = mean;
            y[at + p.groups] = squares / count;
        }
    }
}
