#version 450
#extension GL_GOOGLE_include_directive : require
#if SUBGROUPS
#extension GL_KHR_shader_subgroup_shuffle : require
#endif
// Sums, or with PRODUCTS products, of all elements up to each one along the middle axis of x (outer, size, inner);
// with p.backwards of all elements from each one on. The order is always the same.
//
// Each row is cut into slices, a workgroup's each, which takes TOGETHER elements after TOGETHER: they are joined, and
// their total is carried to the next ones. With STARTS, starts[row, slice] is what the slices before give. With TOTALS
// only each slice's total is written, from which these come.
//
// FOURS: the elements of a row lie side by side and are read as vec4s; sizes and offsets count these. SUBGROUPS: a slice
// is a subgroup's of 8 invocations, or with p.lanes = SIZE one's alone, without a barrier.
#if SUBGROUPS
const uint SIZE = 32;
#define TOGETHER (p.lanes == SIZE ? 1 : 8)
#else
const uint SIZE = 128;
#define TOGETHER SIZE
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
    uint lanes, columns;  // rows of a workgroup; workgroups along x, further ones along z
    uint slices, slice;   // how many, and their length
    uint backwards;
} p;

#if PRODUCTS
const float NOTHING = 1.0;
float join(float a, float b) {
    return a * b;
}
#else
const float NOTHING = 0.0;
float join(float a, float b) {
    return a + b;
}
#endif

float joined_to(float before, float value) {
    return join(before, value);
}

vec4 joined_to(float before, vec4 value) {
    return vec4(join(before, value.x), join(before, value.y), join(before, value.z), join(before, value.w));
}

// Each element joined with those before it.
float scanned(float value) {
    return value;
}

vec4 scanned(vec4 value) {
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

float turned(float value) {
    return value;
}

vec4 turned(vec4 value) {
    return p.backwards == 0 ? value : value.wzyx;
}

#if SUBGROUPS
// What the invocations before this one give, and what all give.
vec2 across(float mine) {
    if (TOGETHER == 1) return vec2(NOTHING, mine);
    const uint me = gl_LocalInvocationID.x % 8;
    vec2 found = vec2(NOTHING);
    for (uint lane = 0; lane < 8; ++lane) {
        if (me == lane) found.x = found.y;
        found.y = join(found.y, subgroupShuffle(mine, lane));
    }
    return found;
}
#else
shared float found[SIZE];

vec2 across(float mine) {
    const uint me = gl_LocalInvocationID.x;
    barrier();
    found[me] = mine;
    for (uint reach = 1; reach < SIZE; reach *= 2) {
        barrier();
        const float before = me >= reach ? found[me - reach] : NOTHING;
        barrier();
        found[me] = join(before, found[me]);
    }
    barrier();
    return vec2(me > 0 ? found[me - 1] : NOTHING, found[SIZE - 1]);
}
#endif

void main() {
    const uint me = gl_LocalInvocationID.x % TOGETHER;
    const uint place = gl_WorkGroupID.z * p.columns + gl_WorkGroupID.x;
    const uint row = place * p.lanes + gl_LocalInvocationID.x / TOGETHER;
    if (row >= p.rows) return;
    const uint base = row / p.inner * p.size * p.inner + row % p.inner;
    const uint slice = gl_WorkGroupID.y;
    const uint first = slice * p.slice;
    const uint last = min(first + p.slice, p.size);
    float carried = NOTHING;
#if STARTS
    if (slice > 0) carried = starts[row * p.slices + slice - 1];
#endif
    for (uint block = first; block < last; block += TOGETHER) {
        const uint i = block + me;
        const uint at = base + (p.backwards == 0 ? i : p.size - 1 - i) * p.inner;
        VALUE value = VALUE(NOTHING);
        if (i < last) value = scanned(turned(x[p.x_offset + at]));
        const vec2 others = across(last_of(value));
#if !TOTALS
        if (i < last) y[at] = turned(joined_to(join(carried, others.x), value));
#endif
        carried = join(carried, others.y);
    }
#if TOTALS
    if (me == 0) y[row * p.slices + slice] = carried;
#endif
}
