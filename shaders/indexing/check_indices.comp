#version 450
#extension GL_GOOGLE_include_directive : require
// Indices of any integer type as int: y[e] = base[e] + scale * index, where base[e] is what y holds already (ADD), or
// lies on a grid of the strides y_strides. A negative index counts from the end of the axis, of `size` elements, if
// `lowest` is -size. y[e] is -1, which selects nothing, where the index is `ignored`, is out of range, or y held -1.
//
// Each workgroup notes the first index that is out of range in its slot of `found`, if that is free: the number of
// the launch, e, and the index as two words. A launch of number 0 notes nothing. BYTES is the size of an index; those smaller than a word are read from
// their words.
#include "divide.glsl"

layout(local_size_x = 128) in;
#if BYTES == 8
layout(binding = 0) readonly buffer X { ivec2 x[]; };
#else
layout(binding = 0) readonly buffer X { int x[]; };
#endif
layout(binding = 1) buffer Found { uvec4 found[]; };
layout(binding = 2) buffer Y { int y[]; };
layout(push_constant) uniform Push {
    uint n, launch, x_offset, scale;
    int size, lowest;
    uint has_ignored;
    int ignored, ignored_high;
    uint axes;
    uint sizes[5];
    uint x_strides[5];
    uint y_strides[5];
} p;

shared uint first_bad;

// The index as two words.
ivec2 index_at(uint i) {
#if BYTES == 8
    return x[i];
#elif BYTES == 4
    return ivec2(x[i], x[i] >> 31);
#else
    const uint per_word = 4 / BYTES;
    const int value = bitfieldExtract(x[i / per_word], int(i % per_word) * 8 * BYTES, 8 * BYTES);
#if SIGNED
    return ivec2(value, value >> 31);
#else
    return ivec2(value & ((1 << (8 * BYTES)) - 1), 0);
#endif
#endif
}

void main() {
    if (gl_LocalInvocationID.x == 0) first_bad = 0xffffffffu;
    barrier();
    const uint step = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
    uint bad = 0xffffffffu;
    ivec2 bad_index = ivec2(0);
    for (uint e = gl_GlobalInvocationID.x; e < p.n; e += step) {
        uint place = p.x_offset, base = 0, remaining = e;
        for (int axis = 4; axis > 5 - int(p.axes); --axis) {
            const uvec2 quotient_rest = divided(remaining, p.sizes[axis]);
            place += quotient_rest.y * p.x_strides[axis];
            base += quotient_rest.y * p.y_strides[axis];
            remaining = quotient_rest.x;
        }
        place += remaining * p.x_strides[5 - p.axes];
        base += remaining * p.y_strides[5 - p.axes];
        const ivec2 index = index_at(place);
        bool selects = p.has_ignored == 0 || index != ivec2(p.ignored, p.ignored_high);
        if (selects && (index.y != index.x >> 31 || index.x < p.lowest || index.x >= p.size)) {
            selects = false;
            if (bad == 0xffffffffu) {
                bad = e;
                bad_index = index;
            }
        }
#if ADD
        const int before = y[e];
        selects = selects && before >= 0;
        base = uint(before);
#endif
        const int from_start = index.x < 0 ? index.x + p.size : index.x;
        y[e] = selects ? int(base + p.scale * uint(from_start)) : -1;
    }
    if (bad != 0xffffffffu) atomicMin(first_bad, bad);
    barrier();
    const uint slot = gl_WorkGroupID.x;
    if (p.launch != 0 && bad != 0xffffffffu && bad == first_bad && found[slot].x == 0) {
        found[slot] = uvec4(p.launch, bad, uvec2(bad_index));
    }
}
