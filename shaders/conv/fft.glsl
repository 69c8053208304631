// The discrete Fourier transform of LENGTH complex numbers, in shared memory, of several rows of numbers side by side.
//
// TEAM invocations take a row, by butterflies of eight (the last ones of four or two) that write where they have read;
// so the results come to lie in the order of reversed bits. SUBGROUPS: a team is a part of a subgroup of 8, which needs
// no barrier.
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
const uint BESIDE = SIZE / TEAM;  // rows
shared vec2 values[LENGTH * BESIDE];

#define EACH(name, count) [[unroll]] for (uint name = 0; name < (count); ++name)
// Not unrolled: drivers take seconds to compile what that makes of long rows.
#define OF_EACH(name, count) [[dont_unroll]] for (uint name = 0; name < (count); ++name)
const float HALF_ROOT = 0.70710678118654752;

void together() {
#if SUBGROUPS
    subgroupBarrier();
#else
    barrier();
#endif
}

// Which row of the workgroup an invocation works at, and its place in the team: neighbours are in a team, or they are in
// teams side by side.
uvec2 along() {
    return uvec2(gl_LocalInvocationID.x / TEAM, gl_LocalInvocationID.x % TEAM);
}

uvec2 across() {
#if SUBGROUPS
    return along();
#else
    return uvec2(gl_LocalInvocationID.x % BESIDE, gl_LocalInvocationID.x / BESIDE);
#endif
}

// The first row of this workgroup among all.
uint first_row() {
    return (gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x) * BESIDE;
}

uint place(uint row, uint i) {
    return i * BESIDE + row;
}

// Number k of a row's transform.
vec2 found(uint row, uint k) {
    return values[place(row, bitfieldReverse(k) >> (32 - LOG))];
}

vec2 product(vec2 a, vec2 b) {
    return vec2(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x);
}

// exp(-2 pi i part) for a part of at most an eighth; what sin() and cos() give differs too much between drivers.
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

// Of four numbers; their order is reversed.
void fourth(inout vec2 a, inout vec2 b, inout vec2 c, inout vec2 d) {
    butterfly(a, c);
    butterfly(b, d);
    d = vec2(d.y, -d.x);
    butterfly(a, b);
    butterfly(c, d);
}

void eights(uint row, uint member, uint span) {
    OF_EACH(n, LENGTH / 8 / TEAM) {
        const uint i = member + n * TEAM;
        const uint apart = span / 8;
        const uint j = i & (apart - 1);
        const uint start = (i - j) * 8 + j;
        vec2 a[8];
        EACH(m, 8) a[m] = values[place(row, start + m * apart)];
        EACH(m, 4) butterfly(a[m], a[m + 4]);
        a[5] = HALF_ROOT * vec2(a[5].x + a[5].y, a[5].y - a[5].x);
        a[6] = vec2(a[6].y, -a[6].x);
        a[7] = HALF_ROOT * vec2(a[7].y - a[7].x, -a[7].x - a[7].y);
        fourth(a[0], a[1], a[2], a[3]);
        fourth(a[4], a[5], a[6], a[7]);
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
        EACH(m, 8) values[place(row, start + m * apart)] = a[m];
    }
}

// Of all rows, in place.
void transform() {
    const uvec2 me = across();
    uint span = LENGTH;
    for (; span >= 8; span /= 8) {
        together();
        eights(me.x, me.y, span);
    }
    together();
    if (span == 4) {
        OF_EACH(n, LENGTH / 4 / TEAM) {
            const uint i = place(me.x, (me.y + n * TEAM) * 4);
            vec2 a = values[i], b = values[i + BESIDE], c = values[i + 2 * BESIDE], d = values[i + 3 * BESIDE];
            fourth(a, b, c, d);
            values[i] = a;
            values[i + BESIDE] = b;
            values[i + 2 * BESIDE] = c;
            values[i + 3 * BESIDE] = d;
        }
    } else if (span == 2) {
        OF_EACH(n, LENGTH / 2 / TEAM) {
            const uint i = place(me.x, (me.y + n * TEAM) * 2);
            const vec2 a = values[i], b = values[i + BESIDE];
            values[i] = a + b;
            values[i + BESIDE] = a - b;
        }
    }
    together();
}
