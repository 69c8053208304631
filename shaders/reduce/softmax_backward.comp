#version 450
#extension GL_GOOGLE_include_directive : require
#if SUBGROUPS
#extension GL_KHR_shader_subgroup_shuffle : require
#endif
// The gradient of softmax, y * (g - sum(g * y)), or with LOG of log-softmax, g - exp(y) * sum(g), along
// the middle axis of g and y (outer, size, inner).
layout(push_constant) uniform Push {
    uint rows, size, inner, lanes, columns, g_offset, y_offset;
} p;
#include "rows.glsl"

layout(binding = 0) readonly buffer G { VALUE g[]; };
layout(binding = 1) readonly buffer Y { VALUE y[]; };
layout(binding = 2) writeonly buffer Z { VALUE z[]; };

void main() {
    const uint row_start = start_of(row());
    const uint end = row() < p.rows ? p.size : 0;
    VALUE my_sum = VALUE(0.0);
    for (uint i = first(); i < end; i += step()) {
        const uint index = row_start + i * p.inner;
#if LOG
        my_sum += g[p.g_offset + index];
#else
        my_sum += g[p.g_offset + index] * y[p.y_offset + index];
#endif
    }
    const float sum = total(my_sum);
    for (uint i = first(); i < end; i += step()) {
        const uint index = row_start + i * p.inner;
#if LOG
        z[index] = g[p.g_offset + index] - exp(y[p.y_offset + index]) * sum;
#else
        z[index] = y[p.y_offset + index] * (g[p.g_offset + index] - sum);
#endif
    }
}
