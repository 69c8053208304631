// Rows along the middle axis of (outer, size, inner). A workgroup takes several neighbouring rows and some invocations
// walk along each; what they find is joined always in the same order. All invocations must come to that.
//
// A workgroup takes `lanes` rows, a power of 2, and SIZE / lanes invocations to each join in a tree. SUBGROUPS: those are 8,
// which are a subgroup, or one alone, so they join without a barrier.
// FOURS: the elements of a row lie side by side, inner is 1, and are read as VALUEs of four; sizes and offsets count
// these.
//
// Before: p with rows, size, inner, lanes and columns (workgroups along x, further ones along z), and with KIND, State
// with merge().
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
    const uint me = gl_LocalInvocationID.x;
    return (gl_WorkGroupID.z * p.columns + gl_WorkGroupID.x) * p.lanes + (alone() ? me : me / TOGETHER);
}

uint first() {
    return alone() ? 0 : gl_LocalInvocationID.x % TOGETHER;
}

uint step() {
    return alone() ? 1 : TOGETHER;
}

// The largest of, and the sum over, the invocations of a row; each gets it.
float largest(VALUE mine) {
    float found = largest_of(mine);
    if (alone()) return found;
    found = larger(found, subgroupShuffleXor(found, 1));
    found = larger(found, subgroupShuffleXor(found, 2));
    return larger(found, subgroupShuffleXor(found, 4));
}

float total(VALUE mine) {
    float found = sum_of(mine);
    if (alone()) return found;
    found += subgroupShuffleXor(found, 1);
    found += subgroupShuffleXor(found, 2);
    return found + subgroupShuffleXor(found, 4);
}
#else
const uint SIZE = 128;
layout(local_size_x = SIZE) in;

uint row() {
    return (gl_WorkGroupID.z * p.columns + gl_WorkGroupID.x) * p.lanes + gl_LocalInvocationID.x % p.lanes;
}

// The first element of this invocation, and how many lie between two of them.
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
    const float found = partial[me % p.lanes];
    barrier();
    return found;
}

float total(VALUE mine) {
    const uint me = gl_LocalInvocationID.x;
    partial[me] = sum_of(mine);
    for (uint reach = SIZE / 2; reach >= p.lanes; reach /= 2) {
        barrier();
        if (me < reach) partial[me] += partial[me + reach];
    }
    barrier();
    const float found = partial[me % p.lanes];
    barrier();
    return found;
}
#endif
#endif

// Where a row's first element lies.
uint start_of(uint row) {
    return row / p.inner * p.size * p.inner + row % p.inner;
}
