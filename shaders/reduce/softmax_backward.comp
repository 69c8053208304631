#version 450
#extension GL_GOOGLE_include_directive : require
#if SUBGROUPS
#extension GL_KHR_shader_subgroup_shuffle : require
#endif
// The gradient of softmax, y * (g - sum(g * y)), or with LOG that of its logarithm, g - exp(y) * sum(g), along
// the middle axis of g and y (outer, size, inner).
layout(push_constant) uniform Push {
    uint rows, size, inner, lanes, columns, g_offset, y_offset;
} p;
#include "rows.glsl"

layout(binding = 0) readonly buffer G { VALUE g[]; };
layout(binding = 1) readonly buffer Y { VALUE y[]; };
layout(binding = 2) writeonly buffer Z { VALUE z[]; };

void main() {
    const uint at = start_of(row());
    const uint end = row() < p.rows ? p.size : 0;
    VALUE sum_each = VALUE(0.0);
    for (uint i = first(); i < end; i += step()) {
        const uint here = at + i * p.inner;
#if LOG
        sum_each += g[p.g_offset + here];
#else
        sum_each += g[p.g_offset + here] * y[p.y_offset + here];
#endif
    }
    const float sum = total(sum_each);
    for (uint i = first(); i < end; i += step()) {
        const uint here = at + i * p.inner;
#if LOG
        z[here] = g[p.g_offset + here] - exp(y[p.y_offset + here]) * sum;
#else
        z[here] = y[p.y_offset + here] * (g[p.g_offset + here] - sum);
#endif
    }
}
