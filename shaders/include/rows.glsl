// Reductions of rows, along the middle axis of (outer, size, inner). A workgroup reduces several neighbouring rows, each
// with some invocations, always in the same order. All invocations must call the reductions, as these have barriers.
//
// A workgroup has `lanes` rows, a power of 2, and SIZE / lanes invocations for each, which reduce in a tree. SUBGROUPS 1: a
// row has the 8 invocations of a subgroup, or one alone, which need no barrier. SUBGROUPS 2: a workgroup has one row, whose
// elements are read once, into registers, KEEP of them by each invocation; each subgroup adds up its own.
// FOURS: the elements of a row are adjacent, inner is 1, and are read as VALUEs of four; sizes and offsets count these.
//
// A kernel goes through the elements i of its row up to `end`, a variable of the kernel's, by EACH, as often as it needs:
// KEPT(name, LOAD, k, i) is the one that KEEP_ROW(name, LOAD) has kept, or else LOAD(i). With SUBGROUPS 2 there may be some i
// behind the row: what is summed there is to be 0, by in_row(), and nothing may be written, so IN_ROW(i) is asked.
//
// To be declared before: p with rows, size, inner, lanes and columns (workgroups along x, the other ones along z), and
// with KIND, State and merge().
#include "math/special.glsl"
#if FOURS
#define VALUE vec4
#define CONDITION bvec4
#define ONE_OF(values, at) values[(at) / 4][(at) % 4]
const uint WIDTH = 4;
#else
#define VALUE float
#define CONDITION bool
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

#if SUBGROUPS == 2
#include "float_order.glsl"
// Constant 0 is for the kernel itself.
layout(constant_id = 1) const uint SIZE = 64;
layout(constant_id = 2) const uint KEEP = 1;
const uint MAX_KEEP = 4;
layout(local_size_x_id = 1) in;
shared float of_subgroups[128];
#define EACH(k, i) [[unroll]] for (uint k = 0, i = first(); k < KEEP; ++k, i += SIZE)
#define KEEP_ROW(name, LOAD) \
    VALUE name[MAX_KEEP]; \
    EACH(k, i) name[k] = LOAD(min(i, end - 1));
#define KEPT(name, LOAD, k, i) name[k]
#define IN_ROW(i) ((i) < p.size)
#define SKIP_NO_ROW() if (row() >= p.rows) return

uint row() {
    return gl_WorkGroupID.z * p.columns + gl_WorkGroupID.x;
}

uint first() {
    return gl_LocalInvocationID.x;
}

VALUE in_row(uint i, VALUE value) {
    return mix(VALUE(0.0), value, CONDITION(i < p.size));
}

// The result of the subgroup's first invocation, of all subgroups.
void share(float mine) {
    barrier();
    if (subgroupElect()) of_subgroups[gl_SubgroupID] = mine;
    barrier();
}

float largest(VALUE mine) {
    float result = from_order(subgroupMax(order_of(largest_of(mine))));
    if (gl_NumSubgroups > 1) {
        share(result);
        for (uint s = 0; s < gl_NumSubgroups; ++s) result = larger(result, of_subgroups[s]);
    }
    return result;
}

float total(VALUE mine) {
    float result = subgroupAdd(sum_of(mine));
    if (gl_NumSubgroups > 1) {
        share(result);
        result = 0.0;
        for (uint s = 0; s < gl_NumSubgroups; ++s) result += of_subgroups[s];
    }
    return result;
}
#elif SUBGROUPS
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

#if SUBGROUPS != 2
#define EACH(k, i) for (uint i = first(); i < end; i += step())
#define KEEP_ROW(name, LOAD)
#define KEPT(name, LOAD, k, i) LOAD(i)
#define IN_ROW(i) true
#define SKIP_NO_ROW()
#define in_row(i, value) (value)
#endif

// The position of the first element of a row.
uint start_of(uint row) {
    return row / p.inner * p.size * p.inner + row % p.inner;
}
