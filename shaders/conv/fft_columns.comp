#version 450
// Transforms columns of complex numbers that lie side by side, in place; with INVERSE=1 back. Beyond the first `pairs`
// pairs there are zeros. Grid: `count` columns.
#extension GL_GOOGLE_include_directive : require
#include "fft.glsl"
layout(binding = 0) restrict buffer U { vec4 u[]; };
layout(push_constant) uniform Push {
    uint count, pairs;
} p;

// Backwards is forwards with the real and imaginary parts exchanged.
vec4 turned(vec4 z) {
#if INVERSE
    return z.yxwz;
#else
    return z;
#endif
}

void main() {
    const uvec2 me = along();
    const uint column = first_row() + me.x;
    const uint start = column * (LENGTH / 2);
    const bool there = column < p.count;
    OF_EACH(m, LENGTH / 2 / TEAM) {
        const uint i = me.y + m * TEAM;
        const vec4 z = turned(there && i < p.pairs ? u[start + i] : vec4(0.0));
        values[place(me.x, 2 * i)] = z.xy;
        values[place(me.x, 2 * i + 1)] = z.zw;
    }
    transform();
    if (!there) return;
    OF_EACH(m, LENGTH / 2 / TEAM) {
        const uint i = me.y + m * TEAM;
        u[start + i] = turned(vec4(found(me.x, 2 * i), found(me.x, 2 * i + 1)));
    }
}
