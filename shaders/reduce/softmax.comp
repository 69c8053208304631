#version 450
#extension GL_GOOGLE_include_directive : require
// Softmax, or with LOG its logarithm, along the middle axis of x (outer, size, inner).
#define KIND LOGSUMEXP
#include "reductions.glsl"

layout(binding = 0) readonly buffer X { float x[]; };
layout(binding = 1) writeonly buffer Y { float y[]; };
layout(push_constant) uniform Push {
    uint rows, size, inner, lanes, columns, x_offset;
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
    const bool undefined = isnan(s.high) || isinf(s.high);  // exp(nan) is anything on some drivers
#if LOG
    const float rest = log(s.sum);
#endif
    for (uint i = first(); i < p.size; i += step()) {
        const uint here = at + i * p.inner;
#if LOG
        const float value = (x[p.x_offset + here] - s.high) - rest;
#else
        const float value = exp(x[p.x_offset + here] - s.high) / s.sum;
#endif
        y[here] = undefined ? NAN : value;
    }
}
