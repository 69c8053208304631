#version 450
#extension GL_GOOGLE_include_directive : require
// y = x for elements of BYTES bytes, 1 or 2, both strided with RANK axes. Elements share words, so each one changes
// its bits of a word by atomic operations; the memory between the elements of y does not change.
#include "divide.glsl"

const uint PER_WORD = 4 / BYTES;
const uint BITS = 8 * BYTES;
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

void main() {
    const uint step = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
    for (uint i = gl_GlobalInvocationID.x; i < p.n; i += step) {
        uint x_index = p.x_offset, y_index = p.y_offset, remaining = i;
        for (int axis = RANK - 1; axis > RANK - int(AXES); --axis) {
            const uvec2 quotient_rest = divided(remaining, p.sizes[axis]);
            x_index += quotient_rest.y * p.x_strides[axis];
            y_index += quotient_rest.y * p.y_strides[axis];
            remaining = quotient_rest.x;
        }
        x_index += remaining * p.x_strides[RANK - AXES];
        y_index += remaining * p.y_strides[RANK - AXES];
        const uint element = x[x_index / PER_WORD] >> (x_index % PER_WORD * BITS) & MASK;
        const uint shift = y_index % PER_WORD * BITS;
        atomicAnd(y[y_index / PER_WORD], ~(MASK << shift));
        atomicOr(y[y_index / PER_WORD], element << shift);
    }
}
