// Reductions of rows, which are lines along the middle axis of (outer, size, inner).
//
// A workgroup reduces `lanes` neighbouring rows, a power of 2. SIZE / lanes invocations stride along each row, then
// combine their partial results in a tree, always in the same order. All invocations must reach this call, as it has
// barriers. SUBGROUPS: 8 invocations (a subgroup) or one reduce a row, so they combine without a barrier.
// FOURS: the elements of a row are neighbours (inner is 1) and are loaded as VALUEs of four; sizes and offsets count
// these vectors.
//
// The including shader defines p with rows, size, inner, lanes and columns (workgroups along x; further ones are along
// z) and, with KIND, State and merge().
#include "math/special.glsl"
#if FOURS
#define VALUE vec4
#define ONE_OF(values, at) values[(at) / 4][(at) % 4]
const uint WIDTH = 4;
#else
#define VALUE float
#define ONE_OF(values, at) values[at]
const uint WIDTH = 1;
#endif

vec4 larger(vec4 a, vec4 b) {
    return vec4(larger(a.x, b.x), larger(a.y, b.y), larger(a.z, b.z), larger(a.w, b.w));
}

float largest_of(float a) {
    return a;
}

float largest_of(vec4 a) {
    return larger(larger(a.x, a.y), larger(a.z, a.w));
}

float sum_of(float a) {
    return a;
}

float sum_of(vec4 a) {
    return (a.x + a.y) + (a.z + a.w);
}

#if SUBGROUPS
const uint SIZE = 32;
const uint TOGETHER = 8;
layout(local_size_x = SIZE) in;

bool alone() {
    return p.lanes == SIZE;
}

uint row() {
    const uint id = gl_LocalInvocationID.x;
    return (gl_WorkGroupID.z * p.columns + gl_WorkGroupID.x) * p.lanes + (alone() ? id : id / TOGETHER);
}

uint first() {
    return alone() ? 0 : gl_LocalInvocationID.x % TOGETHER;
}

uint step() {
    return alone() ? 1 : TOGETHER;
}

// Maximum and sum over the invocations of a row; each invocation gets the result.
float largest(VALUE value) {
    float result = largest_of(value);
    if (alone()) return result;
    result = larger(result, subgroupShuffleXor(result, 1));
    result = larger(result, subgroupShuffleXor(result, 2));
    return larger(result, subgroupShuffleXor(result, 4));
}

float total(VALUE value) {
    float result = sum_of(value);
    if (alone()) return result;
    result += subgroupShuffleXor(result, 1);
    result += subgroupShuffleXor(result, 2);
    return result + subgroupShuffleXor(result, 4);
}
#else
const uint SIZE = 128;
layout(local_size_x = SIZE) in;

uint row() {
    return (gl_WorkGroupID.z * p.columns + gl_WorkGroupID.x) * p.lanes + gl_LocalInvocationID.x % p.lanes;
}

// The first element of this invocation, and the step from one of its elements to the next.
uint first() {
    return gl_LocalInvocationID.x / p.lanes;
}

uint step() {
    return SIZE / p.lanes;
}

#ifdef KIND
shared State states[SIZE];

State joined(State value) {
    const uint id = gl_LocalInvocationID.x;
    states[id] = value;
    for (uint reach = SIZE / 2; reach >= p.lanes; reach /= 2) {
        barrier();
        if (id < reach) states[id] = merge(states[id], states[id + reach]);
    }
    barrier();
    return states[id % p.lanes];
}
#else
shared float partial[SIZE];

float largest(VALUE value) {
    const uint id = gl_LocalInvocationID.x;
    partial[id] = largest_of(value);
    for (uint reach = SIZE / 2; reach >= p.lanes; reach /= 2) {
        barrier();
        if (id < reach) partial[id] = larger(partial[id], partial[id + reach]);
    }
    barrier();
    const float result = partial[id % p.lanes];
    barrier();
    return result;
}

float total(VALUE value) {
    const uint id = gl_LocalInvocationID.x;
    partial[id] = sum_of(value);
    for (uint reach = SIZE / 2; reach >= p.lanes; reach /= 2) {
        barrier();
        if (id < reach) partial[id] += partial[id + reach];
    }
    barrier();
    const float result = partial[id % p.lanes];
    barrier();
    return result;
}
#endif
#endif

// The offset of a row's first element.
uint start_of(uint row) {
    return row / p.inner * p.size * p.inner + row % p.inner;
}
