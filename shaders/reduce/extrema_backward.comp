#version 450
#extension GL_GOOGLE_include_directive : require
// The gradient of max (KIND = ARGMAX) or min (ARGMIN) along the middle axis of x (outer, size, inner): zeros, but g at the
// extreme of each row, the first among equals, or the first nan.
#include "reductions.glsl"

layout(binding = 0) readonly buffer G { float g[]; };
layout(binding = 1) readonly buffer X { float x[]; };
layout(binding = 2) writeonly buffer Z { float z[]; };
layout(push_constant) uniform Push {
    uint rows, size, inner, lanes, columns, g_offset, x_offset;
} p;
#include "rows.glsl"

void main() {
    const bool inside = row() < p.rows;
    const uint at = start_of(row());
    State s = start();
    if (inside) {
        for (uint i = first(); i < p.size; i += step()) s = take(s, x[p.x_offset + at + i * p.inner], i);
    }
    s = joined(s);
    if (!inside) return;
    const float gradient = g[p.g_offset + row()];
    for (uint i = first(); i < p.size; i += step()) z[at + i * p.inner] = i == s.index ? gradient : 0.0;
}
