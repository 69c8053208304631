// Radix-8 fast Fourier transforms of rows of LENGTH complex numbers, several rows side by side in shared memory.
//
// TEAM invocations transform a row in place, by butterflies of eight numbers (the last ones of four or two); so the
// results lie in bit-reversed order. SUBGROUPS=1: a team is a part of a subgroup of 8, which needs no barrier.
#extension GL_EXT_control_flow_attributes : require
#if SUBGROUPS
#extension GL_KHR_shader_subgroup_basic : require
const uint SIZE = 16;
const uint WIDEST = 8;
#else
const uint SIZE = 128;
const uint WIDEST = 128;
#endif
layout(local_size_x = SIZE) in;
layout(constant_id = 0) const uint LOG = 1;
const uint LENGTH = 1u << LOG;
const uint TEAM = LENGTH < 16 ? 1 : LENGTH / 8 < WIDEST ? LENGTH / 8 : WIDEST;
const uint ROWS = SIZE / TEAM;
shared vec2 values[LENGTH * ROWS];

#define UNROLL(name, count) [[unroll]] for (uint name = 0; name < (count); ++name)
// Not unrolled: for long rows drivers would take seconds to compile.
#define LOOP(name, count) [[dont_unroll]] for (uint name = 0; name < (count); ++name)
const float HALF_ROOT = 0.70710678118654752;

void team_barrier() {
#if SUBGROUPS
    subgroupBarrier();
#else
    barrier();
#endif
}

// The row of an invocation in the workgroup, and its number in the team, where neighbours are in one team.
uvec2 team_neighbours() {
    return uvec2(gl_LocalInvocationID.x / TEAM, gl_LocalInvocationID.x % TEAM);
}

// The same, where neighbours are in teams side by side.
uvec2 row_neighbours() {
#if SUBGROUPS
    return team_neighbours();
#else
    return uvec2(gl_LocalInvocationID.x % ROWS, gl_LocalInvocationID.x / ROWS);
#endif
}

// The first row of this workgroup among all rows.
uint first_row() {
    return (gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x) * ROWS;
}

uint index_of(uint row, uint i) {
    return i * ROWS + row;
}

// Number k of a row's transform.
vec2 result(uint row, uint k) {
    return values[index_of(row, bitfieldReverse(k) >> (32 - LOG))];
}

vec2 product(vec2 a, vec2 b) {
    return vec2(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x);
}

// exp(-2 pi i part) for a part of at most an eighth; sin() and cos() differ too much between drivers.
vec2 root(float part) {
    const float x = part * 6.28318530717958648;
    const float z = x * x;
    const float c = ((2.443315711809948e-5 * z - 1.388731625493765e-3) * z + 4.166664568298827e-2) * z * z - 0.5 * z + 1.0;
    const float s = ((-1.9515295891e-4 * z + 8.3321608736e-3) * z - 1.6666654611e-1) * z * x + x;
    return vec2(c, -s);
}

void butterfly(inout vec2 a, inout vec2 b) {
    const vec2 difference = a - b;
    a += b;
    b = difference;
}

// The transform of four numbers, in bit-reversed order.
void transform4(inout vec2 a, inout vec2 b, inout vec2 c, inout vec2 d) {
    butterfly(a, c);
    butterfly(b, d);
    d = vec2(d.y, -d.x);
    butterfly(a, b);
    butterfly(c, d);
}

// One pass of butterflies of eight numbers, `span` / 8 apart, over a row.
void radix8_pass(uint row, uint member, uint span) {
    LOOP(n, LENGTH / 8 / TEAM) {
        const uint i = member + n * TEAM;
        const uint distance = span / 8;
        const uint j = i & (distance - 1);
        const uint start = (i - j) * 8 + j;
        vec2 a[8];
        UNROLL(m, 8) a[m] = values[index_of(row, start + m * distance)];
        UNROLL(m, 4) butterfly(a[m], a[m + 4]);
        a[5] = HALF_ROOT * vec2(a[5].x + a[5].y, a[5].y - a[5].x);
        a[6] = vec2(a[6].y, -a[6].x);
        a[7] = HALF_ROOT * vec2(a[7].y - a[7].x, -a[7].x - a[7].y);
        transform4(a[0], a[1], a[2], a[3]);
        transform4(a[4], a[5], a[6], a[7]);
        const vec2 w = root(float(j) / float(span));
        const vec2 w2 = product(w, w);
        const vec2 w3 = product(w2, w);
        const vec2 w4 = product(w2, w2);
        a[1] = product(a[1], w4);
        a[2] = product(a[2], w2);
        a[3] = product(a[3], product(w4, w2));
        a[4] = product(a[4], w);
        a[5] = product(a[5], product(w4, w));
        a[6] = product(a[6], w3);
        a[7] = product(a[7], product(w4, w3));
        UNROLL(m, 8) values[index_of(row, start + m * distance)] = a[m];
    }
}

// Transforms all rows, in place.
void transform() {
    const uvec2 me = row_neighbours();
    uint span = LENGTH;
    for (; span >= 8; span /= 8) {
        team_barrier();
        radix8_pass(me.x, me.y, span);
    }
    team_barrier();
    if (span == 4) {
        LOOP(n, LENGTH / 4 / TEAM) {
            const uint i = index_of(me.x, (me.y + n * TEAM) * 4);
            vec2 a = values[i], b = values[i + ROWS], c = values[i + 2 * ROWS], d = values[i + 3 * ROWS];
            transform4(a, b, c, d);
            values[i] = a;
            values[i + ROWS] = b;
            values[i + 2 * ROWS] = c;
            values[i + 3 * ROWS] = d;
        }
    } else if (span == 2) {
        LOOP(n, LENGTH / 2 / TEAM) {
            const uint i = index_of(me.x, (me.y + n * TEAM) * 2);
            const vec2 a = values[i], b = values[i + ROWS];
            values[i] = a + b;
            values[i + ROWS] = a - b;
        }
    }
    team_barrier();
}
