#version 450
#extension GL_GOOGLE_include_directive : require
#if SUBGROUPS
#extension GL_KHR_shader_subgroup_shuffle : require
#endif
// Inclusive scan: cumulative sums, or with PRODUCTS products, along the middle axis of x (outer, size, inner); with
// p.backwards from the last element to the first. The order of the additions is always the same.
//
// Each row is cut into slices, one for each workgroup, which scans BLOCK elements at a time and carries their total to
// the next ones. STARTS: starts[row, slice] is the total of this slice and the ones before it. TOTALS: only the total of
// each slice is written, which another launch scans to get these starts.
//
// FOURS: the elements of a row are adjacent and read as vec4s; sizes and offsets count these. SUBGROUPS: a subgroup of 8
// invocations, or with p.lanes = SIZE one invocation, scans a slice without a barrier.
#if SUBGROUPS
const uint SIZE = 32;
#define BLOCK (p.lanes == SIZE ? 1 : 8)
#else
const uint SIZE = 128;
#define BLOCK SIZE
#endif
#if FOURS
#define VALUE vec4
#else
#define VALUE float
#endif
layout(local_size_x = SIZE) in;
layout(binding = 0) readonly buffer X { VALUE x[]; };
#if STARTS
layout(binding = 1) readonly buffer Starts { float starts[]; };
#endif
#if TOTALS
layout(binding = 1) writeonly buffer Y { float y[]; };
#else
layout(binding = STARTS + 1) writeonly buffer Y { VALUE y[]; };
#endif
layout(push_constant) uniform Push {
    uint rows, size, inner, x_offset;
    uint lanes, columns;  // rows of a workgroup; workgroups along x, the other ones along z
    uint slices, slice;   // number and length of the slices
    uint backwards;
} p;

#if PRODUCTS
const float IDENTITY = 1.0;
float join(float a, float b) {
    return a * b;
}
#else
const float IDENTITY = 0.0;
float join(float a, float b) {
    return a + b;
}
#endif

float join_all(float before, float value) {
    return join(before, value);
}

vec4 join_all(float before, vec4 value) {
    return vec4(join(before, value.x), join(before, value.y), join(before, value.z), join(before, value.w));
}

// The scan of the elements of one VALUE.
float scan(float value) {
    return value;
}

vec4 scan(vec4 value) {
    const float two = join(value.x, value.y);
    const float three = join(two, value.z);
    return vec4(value.x, two, three, join(three, value.w));
}

float last_of(float value) {
    return value;
}

float last_of(vec4 value) {
    return value.w;
}

float in_scan_order(float value) {
    return value;
}

vec4 in_scan_order(vec4 value) {
    return p.backwards == 0 ? value : value.wzyx;
}

#if SUBGROUPS
// The total of the invocations before this one, and of all invocations.
vec2 exchange_totals(float mine) {
    if (BLOCK == 1) return vec2(IDENTITY, mine);
    const uint me = gl_LocalInvocationID.x % 8;
    vec2 result = vec2(IDENTITY);
    for (uint lane = 0; lane < 8; ++lane) {
        if (me == lane) result.x = result.y;
        result.y = join(result.y, subgroupShuffle(mine, lane));
    }
    return result;
}
#else
shared float totals[SIZE];

vec2 exchange_totals(float mine) {
    const uint me = gl_LocalInvocationID.x;
    barrier();
    totals[me] = mine;
    for (uint reach = 1; reach < SIZE; reach *= 2) {
        barrier();
        const float before = me >= reach ? totals[me - reach] : IDENTITY;
        barrier();
        totals[me] = join(before, totals[me]);
    }
    barrier();
    return vec2(me > 0 ? totals[me - 1] : IDENTITY, totals[SIZE - 1]);
}
#endif

void main() {
    const uint me = gl_LocalInvocationID.x % BLOCK;
    const uint tile = gl_WorkGroupID.z * p.columns + gl_WorkGroupID.x;
    const uint row = tile * p.lanes + gl_LocalInvocationID.x / BLOCK;
    if (row >= p.rows) return;
    const uint base = row / p.inner * p.size * p.inner + row % p.inner;
    const uint slice = gl_WorkGroupID.y;
    const uint first = slice * p.slice;
    const uint last = min(first + p.slice, p.size);
    float carried = IDENTITY;
#if STARTS
    if (slice > 0) carried = starts[row * p.slices + slice - 1];
#endif
    for (uint start = first; start < last; start += BLOCK) {
        const uint i = start + me;
        const uint at = base + (p.backwards == 0 ? i : p.size - 1 - i) * p.inner;
        VALUE value = VALUE(IDENTITY);
        if (i < last) value = scan(in_scan_order(x[p.x_offset + at]));
        const vec2 others = exchange_totals(last_of(value));
#if !TOTALS
        if (i < last) y[at] = in_scan_order(join_all(join(carried, others.x), value));
#endif
        carried = join(carried, others.y);
    }
#if TOTALS
    if (me == 0) y[row * p.slices + slice] = carried;
#endif
}
