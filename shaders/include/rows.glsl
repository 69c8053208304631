// Reductions of rows, along the middle axis of (outer, size, inner). A workgroup reduces several neighbouring rows, each
// with some invocations, always in the same order. All invocations must call the reductions, as these have barriers.
//
// A workgroup has `lanes` rows, a power of 2, and SIZE / lanes invocations for each, which reduce in a tree. SUBGROUPS: a
// row has the 8 invocations of a subgroup, or one alone, which need no barrier.
// FOURS: the elements of a row are adjacent, inner is 1, and are read as VALUEs of four; sizes and offsets count these.
//
// To be declared before: p with rows, size, inner, lanes and columns (workgroups along x, the other ones along z), and
// with KIND, State and merge().
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
const uint SUBGROUP_SIZE = 8;
layout(local_size_x = SIZE) in;

bool alone() {
    return p.lanes == SIZE;
}

uint row() {
    const uint me = gl_LocalInvocationID.x;
    return (gl_WorkGroupID.z * p.columns + gl_WorkGroupID.x) * p.lanes + (alone() ? me : me / SUBGROUP_SIZE);
}

uint first() {
    return alone() ? 0 : gl_LocalInvocationID.x % SUBGROUP_SIZE;
}

uint step() {
    return alone() ? 1 : SUBGROUP_SIZE;
}

// The maximum and the sum over the invocations of a row, for each of them.
float largest(VALUE mine) {
    float result = largest_of(mine);
    if (alone()) return result;
    result = larger(result, subgroupShuffleXor(result, 1));
    result = larger(result, subgroupShuffleXor(result, 2));
    return larger(result, subgroupShuffleXor(result, 4));
}

float total(VALUE mine) {
    float result = sum_of(mine);
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

// The first element of this invocation, and the distance to its next one.
uint first() {
    return gl_LocalInvocationID.x / p.lanes;
}

uint step() {
    return SIZE / p.lanes;
}

#ifdef KIND
shared State states[SIZE];

State joined(State mine) {
    const uint me = gl_LocalInvocationID.x;
    states[me] = mine;
    for (uint reach = SIZE / 2; reach >= p.lanes; reach /= 2) {
        barrier();
        if (me < reach) states[me] = merge(states[me], states[me + reach]);
    }
    barrier();
    return states[me % p.lanes];
}
#else
shared float partial[SIZE];

float largest(VALUE mine) {
    const uint me = gl_LocalInvocationID.x;
    partial[me] = largest_of(mine);
    for (uint reach = SIZE / 2; reach >= p.lanes; reach /= 2) {
        barrier();
        if (me < reach) partial[me] = larger(partial[me], partial[me + reach]);
    }
    barrier();
    const float result = partial[me % p.lanes];
    barrier();
    return result;
}

float total(VALUE mine) {
    const uint me = gl_LocalInvocationID.x;
    partial[me] = sum_of(mine);
    for (uint reach = SIZE / 2; reach >= p.lanes; reach /= 2) {
        barrier();
        if (me < reach) partial[me] += partial[me + reach];
    }
    barrier();
    const float result = partial[me % p.lanes];
    barrier();
    return result;
}
#endif
#endif

// The position of the first element of a row.
uint start_of(uint row) {
    return row / p.inner * p.size * p.inner + row % p.inner;
}
