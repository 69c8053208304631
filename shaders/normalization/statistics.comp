#version 450
#extension GL_GOOGLE_include_directive : require
#if ARITHMETIC
#extension GL_KHR_shader_subgroup_arithmetic : require
#endif
// Mean and variance of x (outer, groups, inner) over the outer and inner axes. The elements of a group are cut into
// slices of p.slice elements; y (slices, 2, groups) has mean and variance of each, which statistics_combine.comp
// combines.
// FOURS: four elements of one group are read at once; inner, slice and offset are in units of four.
// A workgroup takes COLUMNS adjacent groups, so that with inner = 1 its reads are contiguous.
const uint SIZE = 128;
layout(local_size_x = 128) in;
layout(push_constant) uniform Push {
    uint outer, groups, inner, slice, slices, x_offset;
#ifdef PROLOGUE
    PROLOGUE_PUSH
#endif
} p;
#include "divide.glsl"
#include "tree.glsl"

layout(binding = 0) readonly buffer X { VALUE x[]; };
layout(binding = 1) writeonly buffer Y { float y[]; };

#define SOURCE(i) x[p.x_offset + i]
#define SOURCE_FOURS FOURS
#include "prologue.glsl"

VALUE element(uint t, uint group) {
    const uvec2 outer_inner = divided(t, p.inner);
    return prologue((outer_inner.x * p.groups + group) * p.inner + outer_inner.y);
}

void main() {
    const uint column = gl_LocalInvocationID.x % COLUMNS;
    const uint row = gl_LocalInvocationID.x / COLUMNS;
    const uint blocks = (p.groups + COLUMNS - 1) / COLUMNS;
    const uint elements = p.outer * p.inner;
    for (uint block = gl_WorkGroupID.x; block < blocks * p.slices; block += gl_NumWorkGroups.x) {
        const uint group = block % blocks * COLUMNS + column;
        const uint first = block / blocks * p.slice;
        const uint end = group < p.groups ? min(first + p.slice, elements) : first;
        const float count = float((min(first + p.slice, elements) - first) * WIDTH);
        VALUE sum = VALUE(0.0);
        for (uint t = first + row; t < end; t += SIZE / COLUMNS) sum += element(t, group);
        const float mean = total(sum_of(sum)) / count;
        VALUE squares_each = VALUE(0.0);
        for (uint t = first + row; t < end; t += SIZE / COLUMNS) {
            const VALUE d = element(t, group) - mean;
            squares_each += d * d;
        }
        const float squares = total(sum_of(squares_each));
        if (row == 0 && group < p.groups) {
            const uint out_index = block / blocks * 2 * p.groups + group;
            y[out_index] = mean;
            y[out_index + p.groups] = squares / count;
        }
    }
}
