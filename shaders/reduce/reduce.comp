#version 450
#extension GL_GOOGLE_include_directive : require
#if SUBGROUPS
#extension GL_KHR_shader_subgroup_shuffle : require
#endif
// Reduces REDUCED axes of a strided tensor to the elements of a contiguous one; it keeps up to RANK axes.
//
// A workgroup has `lanes` outputs side by side and 128 / lanes invocations for each of them, which walk
// over the reduced elements next to each other and join what they found in a tree. Where there are few
// outputs, the elements are cut into slices, each a workgroup's; their states are written, and the
// variant with MERGE joins them. The order is always the same.
//
// KIND says what is gathered (reductions.glsl), ELEMENT(x) what is taken of an element and RESULT(s) what
// the result is, both with p.number. WIDE: the result is an int64, written as two words.
//
// SUBGROUPS: a subgroup of 8 invocations has an output, and they join without a barrier. Elements along the last reduced
// axis lie side by side and are read four at once; size, slice, sizes, strides and the offset count fours.
#define RANK 4
layout(constant_id = 0) const uint AXES = RANK;  // the last of the kept ones; those in front have size 1
#if SUBGROUPS
const uint SIZE = 32;
const uint TOGETHER = 8;
#else
const uint SIZE = 128;
#endif
const uint BLOCK = 64;  // steps of an invocation that are summed apart, so that long sums keep their digits
layout(local_size_x = SIZE) in;
#if SUBGROUPS
layout(binding = 0) readonly buffer X { vec4 x[]; };
#else
layout(binding = 0) readonly buffer X { uint x[]; };
#endif
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
#include "divide.glsl"
#include "reductions.glsl"

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
#if SUBGROUPS
#define FIRST(at) x[at].x
#define TAKE(s, at, origin, i) merge(s, four(x[at] - origin, 4 * (i)))
#else
#define FIRST(at) uintBitsToFloat(x[at])
#define TAKE(s, at, origin, i) take(s, uintBitsToFloat(x[at]) - origin, i)
#endif

// Where the elements of an output begin.
uint base_of(uint o) {
    uint at = p.x_offset;
    for (int axis = RANK - 1; axis > RANK - int(AXES); --axis) {
        const uvec2 found = divided(o, p.kept_sizes[axis]);
        at += found.y * p.kept_strides[axis];
        o = found.x;
    }
    return at + o * p.kept_strides[RANK - AXES];
}

State gather(uint o, uint first, uint last, uint step) {
    const uint base = base_of(o);
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
    const float origin = first < last ? FIRST(base) : 0.0;
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
            block = TAKE(block, at + place[0] * p.strides[0], origin, i);
            uint carry = 0;
            for (int axis = REDUCED - 1; axis > 0; --axis) {
                place[axis] += move[axis] + carry;
                carry = place[axis] >= p.sizes[axis] ? 1 : 0;
                place[axis] -= carry * p.sizes[axis];
            }
            place[0] += move[0] + carry;
#else
            block = TAKE(block, base + i * p.strides[0], origin, i);
#endif
        }
        found = merge(found, block);
    }
    return found;
}
#endif

#if SUBGROUPS
State from(State mine, uint distance) {
    uvec3 words = packed(mine);
    words.x = subgroupShuffleXor(words.x, distance);
    if (WORDS > 1) words.y = subgroupShuffleXor(words.y, distance);
    if (WORDS > 2) words.z = subgroupShuffleXor(words.z, distance);
    return unpack(words);
}

State joined(State mine) {
    mine = merge(mine, from(mine, 1));
    mine = merge(mine, from(mine, 2));
    return merge(mine, from(mine, 4));
}
#else
shared State states[SIZE];

// What the first of an output's invocations has in the end.
State joined(State mine) {
    const uint me = gl_LocalInvocationID.x;
    states[me] = mine;
    for (uint reach = SIZE / 2; reach >= p.lanes; reach /= 2) {
        barrier();
        if (me < reach) states[me] = merge(states[me], states[me + reach]);
    }
    return states[me];
}
#endif

void main() {
    const uint me = gl_LocalInvocationID.x;
#if SUBGROUPS
    const uint lanes = SIZE / TOGETHER;
    const uint lane = me / TOGETHER;
    const uint place = me % TOGETHER;
#else
    const uint lanes = p.lanes;  // a power of 2
    const uint lane = me % lanes;
    const uint place = me / lanes;
#endif
    const uint o = (gl_WorkGroupID.z * p.columns + gl_WorkGroupID.x) * lanes + lane;
    const uint first = gl_WorkGroupID.y * p.slice;
    const uint last = min(first + p.slice, p.size);
    State all = start();
    if (o < p.outputs) all = gather(o, first + place, last, SIZE / lanes);
    all = joined(all);
    if (place > 0 || o >= p.outputs) return;
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
