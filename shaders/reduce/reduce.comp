#version 450
#extension GL_GOOGLE_include_directive : require
#if SUBGROUPS == 2
#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#elif SUBGROUPS
#extension GL_KHR_shader_subgroup_shuffle : require
#endif
// Reduces REDUCED axes of a strided tensor to the elements of a contiguous one; it keeps up to RANK axes.
//
// A workgroup computes `lanes` adjacent outputs, with 128 / lanes invocations for each of them, which stride over the
// reduced elements and merge their states in a tree. Where there are few outputs, the elements are cut into slices, one
// for each workgroup; their states are written, and the variant with MERGE merges them. The order is always the same.
//
// KIND names the state (reductions.glsl), ELEMENT(x) is the value that is accumulated for an element, and RESULT(s) the
// result of a state; both may use p.number. WIDE: the result is an int64, written as two words.
//
// SUBGROUPS: the elements along the last reduced axis are adjacent and read as vec4s; size, slice, sizes, strides and the
// offset count vec4s. With 1 a subgroup of 8 invocations computes an output, without a barrier. With 2 a workgroup does, and
// each of its subgroups merges its own states.
#define RANK 4
layout(constant_id = 0) const uint AXES = RANK;  // the number of kept axes, which are the last ones; those in front have size 1
#if SUBGROUPS == 2
layout(constant_id = 1) const uint SIZE = 64;
layout(local_size_x_id = 1) in;
#elif SUBGROUPS
const uint SIZE = 32;
const uint SUBGROUP_SIZE = 8;
layout(local_size_x = SIZE) in;
#else
const uint SIZE = 128;
layout(local_size_x = SIZE) in;
#endif
const uint BLOCK = 64;  // steps of an invocation that are summed apart, so that long sums keep their digits
#if SUBGROUPS
layout(binding = 0) readonly buffer X { vec4 x[]; };
#elif MERGE
layout(binding = 0) readonly buffer X { uint x[]; };
#else
layout(binding = 0) readonly buffer X { float x[]; };
#endif
#if WIDE
#define WORD uint
#define WORD_OF(bits) (bits)
#else
#define WORD float  // of results, and of the bits of states
#define WORD_OF(bits) uintBitsToFloat(bits)
#endif
layout(binding = 1) writeonly buffer Y { WORD y[]; };
layout(push_constant) uniform Push {
    uint outputs, size;   // elements of the result, and how many are reduced to each
    uint lanes, columns;  // columns: workgroups along x, the other ones along z
    uint slices, slice;   // number and length of the slices
    float number;
#if !MERGE
    uint x_offset;
    uint kept_sizes[RANK];
    uint kept_strides[RANK];
    uint sizes[REDUCED];
    uint strides[REDUCED];
#endif
#ifdef EPILOGUE
    EPILOGUE_PUSH
#endif
#ifdef PROLOGUE
    PROLOGUE_PUSH
#endif
} p;
#define FIRST_OPERAND 2
#include "epilogue.glsl"
#if POWER
#include "math/power.glsl"
#endif
#include "divide.glsl"
#include "reductions.glsl"
#if SUBGROUPS == 2
#include "subgroup_merge.glsl"
// Loads that are on their way at a time: as many as leave room for other workgroups.
const uint AHEAD = KIND == WIDE_MOMENTS ? 1 : KIND == ARGMAX || KIND == ARGMIN ? 2 : 4;
#endif

#if MERGE
State accumulate(uint o, uint first, uint last, uint step) {
    State result = start();
    for (uint i = first; i < last; i += step) {
        const uint at = (o * p.size + i) * WORDS;
        uint words[WORDS];
        for (uint k = 0; k < WORDS; ++k) words[k] = x[at + k];
        result = merge(result, unpack(words));
    }
    return result;
}
#else
#define ELEMENT_AT(at) x[at]
#ifdef PROLOGUE
#define SOURCE(i) ELEMENT_AT(p.x_offset + i)
#define SOURCE_FOURS SUBGROUPS
#include "prologue.glsl"
#define LOAD(at) prologue((at) - p.x_offset)
#else
#define LOAD(at) ELEMENT_AT(at)
#endif
#if SUBGROUPS
#define FIRST(at) LOAD(at).x
#define TAKE(s, value, i) merge(s, four(value, 4 * (i)))
#else
#define FIRST(at) LOAD(at)
#define TAKE(s, value, i) take(s, value, i)
#endif

#if KIND == MOMENTS || KIND == WIDE_MOMENTS
#define VALUE(at) (LOAD(at) * QUARTER - origin)
#else
#define VALUE(at) LOAD(at)
#endif

// The position of the first element of an output.
uint base_of(uint o) {
    uint at = p.x_offset;
    for (int axis = RANK - 1; axis > RANK - int(AXES); --axis) {
        const uvec2 quotient = divided(o, p.kept_sizes[axis]);
        at += quotient.y * p.kept_strides[axis];
        o = quotient.x;
    }
    return at + o * p.kept_strides[RANK - AXES];
}

State accumulate(uint o, uint first, uint last, uint step) {
    const uint base = base_of(o);
#if REDUCED > 1
    // The coordinates of the invocation along the reduced axes, and of a step, so that the loop needs no division.
    uint coordinate[REDUCED], stride_coordinate[REDUCED];
    uint rest = first, rest_of_step = step;
    for (int axis = REDUCED - 1; axis > 0; --axis) {
        coordinate[axis] = rest % p.sizes[axis];
        stride_coordinate[axis] = rest_of_step % p.sizes[axis];
        rest /= p.sizes[axis];
        rest_of_step /= p.sizes[axis];
    }
    coordinate[0] = rest;
    stride_coordinate[0] = rest_of_step;
#endif
#if KIND == MOMENTS || KIND == WIDE_MOMENTS
    // Differences from the first element keep more digits than the elements if all lie far from 0.
    const float origin = first < last ? FIRST(base) * QUARTER : 0.0;
#endif
    State result = start();
    for (uint i = first; i < last;) {
        State block = start();
        const uint stop = min(last, i + BLOCK * step);
#if SUBGROUPS == 2 && REDUCED == 1
        for (; i + (AHEAD - 1) * step < stop; i += AHEAD * step) {
            vec4 values[AHEAD];
            [[unroll]] for (uint k = 0; k < AHEAD; ++k) values[k] = VALUE(base + (i + k * step) * p.strides[0]);
            [[unroll]] for (uint k = 0; k < AHEAD; ++k) block = TAKE(block, values[k], i + k * step);
        }
#endif
        for (; i < stop; i += step) {
#if REDUCED > 1
            uint at = base;
            for (int axis = REDUCED - 1; axis > 0; --axis) at += coordinate[axis] * p.strides[axis];
            block = TAKE(block, VALUE(at + coordinate[0] * p.strides[0]), i);
            uint carry = 0;
            for (int axis = REDUCED - 1; axis > 0; --axis) {
                coordinate[axis] += stride_coordinate[axis] + carry;
                carry = coordinate[axis] >= p.sizes[axis] ? 1 : 0;
                coordinate[axis] -= carry * p.sizes[axis];
            }
            coordinate[0] += stride_coordinate[0] + carry;
#else
            block = TAKE(block, VALUE(base + i * p.strides[0]), i);
#endif
        }
        result = merge(result, block);
    }
    return result;
}
#endif

#if SUBGROUPS == 2
shared State states[128];  // of subgroups

State merged(State mine) {
    mine = merged_in_subgroup(mine);
    if (gl_NumSubgroups > 1) {
        if (subgroupElect()) states[gl_SubgroupID] = mine;
        barrier();
        mine = states[0];
        for (uint s = 1; s < gl_NumSubgroups; ++s) mine = merge(mine, states[s]);
    }
    return mine;
}
#elif SUBGROUPS
State shuffled(State mine, uint distance) {
    uint words[WORDS] = packed(mine);
    for (uint k = 0; k < WORDS; ++k) words[k] = subgroupShuffleXor(words[k], distance);
    return unpack(words);
}

State merged(State mine) {
    mine = merge(mine, shuffled(mine, 1));
    mine = merge(mine, shuffled(mine, 2));
    return merge(mine, shuffled(mine, 4));
}
#else
shared State states[SIZE];

// The merged state, for the first invocation of each output.
State merged(State mine) {
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
#if SUBGROUPS == 2
    const uint lanes = 1;
    const uint lane = 0;
    const uint member = me;
#elif SUBGROUPS
    const uint lanes = SIZE / SUBGROUP_SIZE;
    const uint lane = me / SUBGROUP_SIZE;
    const uint member = me % SUBGROUP_SIZE;
#else
    const uint lanes = p.lanes;  // a power of 2
    const uint lane = me % lanes;
    const uint member = me / lanes;
#endif
    const uint o = (gl_WorkGroupID.z * p.columns + gl_WorkGroupID.x) * lanes + lane;
    const uint first = gl_WorkGroupID.y * p.slice;
    const uint last = min(first + p.slice, p.size);
    State all = start();
    if (o < p.outputs) all = accumulate(o, first + member, last, SIZE / lanes);
    all = merged(all);
    if (member > 0 || o >= p.outputs) return;
    if (p.slices > 1) {
        const uint words[WORDS] = packed(all);
        const uint at = (o * p.slices + gl_WorkGroupID.y) * WORDS;
        for (uint k = 0; k < WORDS; ++k) y[at + k] = WORD_OF(words[k]);
    } else {
#if WIDE
        y[2 * o] = RESULT(all);
        y[2 * o + 1] = 0;
#else
        y[o] = epilogue(RESULT(all), o, 0, 0);
#endif
    }
}
