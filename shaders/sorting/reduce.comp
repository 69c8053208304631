#version 450
#extension GL_GOOGLE_include_directive : require
// Reduces the rows of x, integers or bools, to int64 or, without WIDE, to words. A workgroup reduces a slice of a row in
// a tree. REDUCTION: 0 sums, 1 products, 2 the largest, 3 the smallest element, 4 and 5 the index of the first of these.
// Sums and products wrap around.
const uint SIZE = 128;
layout(local_size_x = SIZE) in;
#if BYTES == 8
layout(binding = 0) readonly buffer X { uvec2 x[]; };
#else
layout(binding = 0) readonly buffer X { uint x[]; };
#endif
#if WIDE
layout(binding = 1) writeonly buffer Y { uvec2 y[]; };
#else
layout(binding = 1) writeonly buffer Y { uint y[]; };
#endif
layout(push_constant) uniform Push {
    uint rows, size, x_offset;
    uint slices, slice;  // of a row, and the elements of one
    uint columns;        // workgroups along x, the other ones along z
} p;
#include "elements.glsl"
#include "math/int64.glsl"
#define ORDERED (REDUCTION >= 4)

struct State {
    ivec2 value;
    uint index;  // NONE for no element
};
const uint NONE = 0xffffffffu;

State merge(State a, State b) {
    if (b.index == NONE) return a;
    if (a.index == NONE) return b;
#if REDUCTION == 0
    return State(plus(a.value, b.value), 0);
#elif REDUCTION == 1
    return State(times(a.value, b.value), 0);
#elif REDUCTION == 2 || REDUCTION == 4
    const bool first = a.value == b.value ? a.index < b.index : less(b.value, a.value);
    return first ? a : b;
#else
    const bool first = a.value == b.value ? a.index < b.index : less(a.value, b.value);
    return first ? a : b;
#endif
}

shared State states[SIZE];

void main() {
    const uint me = gl_LocalInvocationID.x;
    const uint part = gl_WorkGroupID.z * p.columns + gl_WorkGroupID.x;
    if (part >= p.rows * p.slices) return;
    const uint row = part / p.slices;
    const uint start = part % p.slices * p.slice;
    const uint end = min(start + p.slice, p.size);
#if REDUCTION == 0 || REDUCTION == 1
    State mine = State(ivec2(REDUCTION, 0), 0);
#else
    State mine = State(ivec2(0), NONE);
#endif
    for (uint i = start + me; i < end; i += SIZE) {
        const KEY bits = ELEMENT(p.x_offset + row * p.size + i);
#if BYTES == 8
        const ivec2 value = ivec2(bits);
#elif KIND == 1
        const ivec2 value = widened(bitfieldExtract(int(bits), 0, 8 * BYTES));
#else
        const ivec2 value = ivec2(bits, 0);
#endif
        mine = merge(mine, State(value, i));
    }
    states[me] = mine;
    for (uint reach = SIZE / 2; reach > 0; reach /= 2) {
        barrier();
        if (me < reach) states[me] = merge(states[me], states[me + reach]);
    }
    if (me > 0) return;
#if ORDERED
    y[part] = uvec2(states[0].index, 0);
#elif WIDE
    y[part] = uvec2(states[0].value);
#else
    y[part] = uint(states[0].value.x);
#endif
}
