#version 450
#extension GL_GOOGLE_include_directive : require
// Reduces REDUCED axes of a strided tensor to the elements of a contiguous one; it keeps up to RANK axes.
//
// A workgroup has `lanes` outputs side by side and 128 / lanes invocations for each of them, which walk
// over the reduced elements next to each other and join what they found in a tree. Where there are few
// outputs, the elements are cut into slices, each a workgroup's; their states are written, and the
// variant with MERGE joins them. The order is always the same.
//
// KIND says what is gathered (reductions.glsl), ELEMENT(x) what is taken of an element and RESULT(s) what
// the result is, both with p.number. WIDE: the result is an int64, written as two words.
#define RANK 4
#include "index.glsl"

const uint SIZE = 128;
const uint BLOCK = 64;  // steps of an invocation that are summed apart, so that long sums keep their digits
layout(local_size_x = SIZE) in;
layout(binding = 0) readonly buffer X { uint x[]; };
layout(binding = 1) writeonly buffer Y { uint y[]; };
layout(push_constant) uniform Push {
    uint outputs, size;   // elements of the result, and how many are reduced to each
    uint lanes, columns;  // columns: workgroups along x, further ones along z
    uint slices, slice;   // how many, and the length of each
    float number;
#if !MERGE
    uint x_offset;
    uint kept_sizes[RANK];
    uint kept_strides[RANK];
    uint sizes[REDUCED];
    uint strides[REDUCED];
#endif
} p;
#if POWER
#include "math/power.glsl"
#endif
#include "reductions.glsl"
shared State states[SIZE];

#if MERGE
State gather(uint o, uint first, uint last, uint step) {
    State found = start();
    for (uint i = first; i < last; i += step) {
        const uint at = (o * p.size + i) * WORDS;
        uvec3 words = uvec3(x[at], 0, 0);
        if (WORDS > 1) words.y = x[at + 1];
        if (WORDS > 2) words.z = x[at + 2];
        found = merge(found, unpack(words));
    }
    return found;
}
#else
State gather(uint o, uint first, uint last, uint step) {
    const uint base = p.x_offset + strided(o, p.kept_sizes, p.kept_strides);
#if REDUCED > 1
    // Where the invocation is along each axis, and how far a step moves it: no division on the way.
    uint place[REDUCED], move[REDUCED];
    uint rest = first, far = step;
    for (int axis = REDUCED - 1; axis > 0; --axis) {
        place[axis] = rest % p.sizes[axis];
        move[axis] = far % p.sizes[axis];
        rest /= p.sizes[axis];
        far /= p.sizes[axis];
    }
    place[0] = rest;
    move[0] = far;
#endif
#if KIND == MOMENTS
    // Distances from a first element lose less than those from 0, where all lie far from it.
    const float origin = first < last ? uintBitsToFloat(x[base]) : 0.0;
#else
    const float origin = 0.0;
#endif
    State found = start();
    for (uint i = first; i < last;) {
        State block = start();
        const uint stop = min(last, i + BLOCK * step);
        for (; i < stop; i += step) {
#if REDUCED > 1
            uint at = base;
            for (int axis = REDUCED - 1; axis > 0; --axis) at += place[axis] * p.strides[axis];
            block = take(block, uintBitsToFloat(x[at + place[0] * p.strides[0]]) - origin, i);
            uint carry = 0;
            for (int axis = REDUCED - 1; axis > 0; --axis) {
                place[axis] += move[axis] + carry;
                carry = place[axis] >= p.sizes[axis] ? 1 : 0;
                place[axis] -= carry * p.sizes[axis];
            }
            place[0] += move[0] + carry;
#else
            block = take(block, uintBitsToFloat(x[base + i * p.strides[0]]) - origin, i);
#endif
        }
        found = merge(found, block);
    }
    return found;
}
#endif

void main() {
    const uint me = gl_LocalInvocationID.x;
    const uint lane = me % p.lanes;  // a power of 2
    const uint o = (gl_WorkGroupID.z * p.columns + gl_WorkGroupID.x) * p.lanes + lane;
    const uint first = gl_WorkGroupID.y * p.slice;
    const uint last = min(first + p.slice, p.size);
    State mine = start();
    if (o < p.outputs) mine = gather(o, first + me / p.lanes, last, SIZE / p.lanes);
    states[me] = mine;
    for (uint reach = SIZE / 2; reach >= p.lanes; reach /= 2) {
        barrier();
        if (me < reach) states[me] = merge(states[me], states[me + reach]);
    }
    if (me >= p.lanes || o >= p.outputs) return;
    const State all = states[me];
    if (p.slices > 1) {
        const uvec3 words = packed(all);
        const uint at = (o * p.slices + gl_WorkGroupID.y) * WORDS;
        y[at] = words.x;
        if (WORDS > 1) y[at + 1] = words.y;
        if (WORDS > 2) y[at + 2] = words.z;
    } else {
#if WIDE
        y[2 * o] = RESULT(all);
        y[2 * o + 1] = 0;
#else
        y[o] = floatBitsToUint(RESULT(all));
#endif
    }
}
