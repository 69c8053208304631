#version 450
// Transforms columns of adjacent complex numbers in place, with INVERSE=1 back. After the first `pairs` pairs
// come zeros. Grid: `count` columns.
#extension GL_GOOGLE_include_directive : require
#include "fft.glsl"
layout(binding = 0) restrict buffer U { vec4 u[]; };
layout(push_constant) uniform Push {
    uint count, pairs;
} p;

// The inverse is the transform with real and imaginary parts exchanged.
vec4 exchanged(vec4 z) {
#if INVERSE
    return z.yxwz;
#else
    return z;
#endif
}

void main() {
    const uvec2 me = team_neighbours();
    const uint column = first_row() + me.x;
    const uint start = column * (LENGTH / 2);
    const bool in_range = column < p.count;
    LOOP(m, LENGTH / 2 / TEAM) {
        const uint i = me.y + m * TEAM;
        const vec4 z = exchanged(in_range && i < p.pairs ? u[start + i] : vec4(0.0));
        values[index_of(me.x, 2 * i)] = z.xy;
        values[index_of(me.x, 2 * i + 1)] = z.zw;
    }
    transform();
    if (!in_range) return;
    LOOP(m, LENGTH / 2 / TEAM) {
        const uint i = me.y + m * TEAM;
        u[start + i] = exchanged(vec4(result(me.x, 2 * i), result(me.x, 2 * i + 1)));
    }
}
