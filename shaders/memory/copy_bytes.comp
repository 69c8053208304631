#version 450
#extension GL_GOOGLE_include_directive : require
// y = x for elements of BYTES bytes, 1 or 2, both strided with RANK axes. With WHOLE, y is contiguous from its start
// on and an invocation writes a whole word. Without, elements share words with others, so each one changes its bits
// of a word by atomic operations; the memory between the elements of y does not change.
#include "divide.glsl"

const uint PER_WORD = 4 / BYTES;
const int BITS = 8 * BYTES;
const uint MASK = (1u << BITS) - 1;

layout(local_size_x = 128) in;
layout(constant_id = 0) const uint AXES = RANK;  // number of axes in use, the last ones; those in front have size 1
layout(binding = 0) readonly buffer X { uint x[]; };
layout(binding = 1) buffer Y { uint y[]; };
layout(push_constant) uniform Push {
    uint n, x_offset, y_offset;
    uint sizes[RANK];
    uint x_strides[RANK];
    uint y_strides[RANK];
} p;

// The positions of an element in x and y.
uvec2 places(uint i) {
    uvec2 found = uvec2(p.x_offset, p.y_offset);
    uint remaining = i;
    for (int axis = RANK - 1; axis > RANK - int(AXES); --axis) {
        const uvec2 quotient_rest = divided(remaining, p.sizes[axis]);
        found += quotient_rest.y * uvec2(p.x_strides[axis], p.y_strides[axis]);
        remaining = quotient_rest.x;
    }
    return found + remaining * uvec2(p.x_strides[RANK - AXES], p.y_strides[RANK - AXES]);
}

uint element(uint place) {
    return x[place / PER_WORD] >> (place % PER_WORD * BITS) & MASK;
}

void main() {
    const uint step = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
#if WHOLE
    for (uint j = gl_GlobalInvocationID.x; j < (p.n + PER_WORD - 1) / PER_WORD; j += step) {
        uint word = 0;
        for (uint k = 0; k < PER_WORD && PER_WORD * j + k < p.n; ++k) {
            word |= element(places(PER_WORD * j + k).x) << (k * BITS);
        }
        y[j] = word;
    }
#else
    for (uint i = gl_GlobalInvocationID.x; i < p.n; i += step) {
        const uvec2 found = places(i);
        const uint shift = found.y % PER_WORD * BITS;
        atomicAnd(y[found.y / PER_WORD], ~(MASK << shift));
        atomicOr(y[found.y / PER_WORD], element(found.x) << shift);
    }
#endif
}
