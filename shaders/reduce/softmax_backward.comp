#version 450
#extension GL_GOOGLE_include_directive : require
// The gradient of softmax, y * (g - sum(g * y)), or with LOG that of its logarithm, g - exp(y) * sum(g), along
// the middle axis of g and y (outer, size, inner).
#define KIND SUM
#define ELEMENT(x) x
#include "reductions.glsl"

layout(binding = 0) readonly buffer G { float g[]; };
layout(binding = 1) readonly buffer Y { float y[]; };
layout(binding = 2) writeonly buffer Z { float z[]; };
layout(push_constant) uniform Push {
    uint rows, size, inner, lanes, columns, g_offset, y_offset;
} p;
#include "rows.glsl"

void main() {
    const bool inside = row() < p.rows;
    const uint at = start_of(row());
    float sum = 0.0;
    if (inside) {
        for (uint i = first(); i < p.size; i += step()) {
            const uint here = at + i * p.inner;
#if LOG
            sum += g[p.g_offset + here];
#else
            sum += g[p.g_offset + here] * y[p.y_offset + here];
#endif
        }
    }
    sum = joined(State(sum)).value;
    if (!inside) return;
    for (uint i = first(); i < p.size; i += step()) {
        const uint here = at + i * p.inner;
#if LOG
        z[here] = g[p.g_offset + here] - exp(y[p.y_offset + here]) * sum;
#else
        z[here] = y[p.y_offset + here] * (g[p.g_offset + here] - sum);
#endif
    }
}
