#version 450
#extension GL_GOOGLE_include_directive : require
#if SUBGROUPS
#extension GL_KHR_shader_subgroup_shuffle : require
#endif
// Softmax, or with LOG its logarithm, along the middle axis of x (outer, size, inner), in three passes: largest element,
// sum of exponentials, result.
layout(push_constant) uniform Push {
    uint rows, size, inner, lanes, columns, x_offset;
} p;
#include "rows.glsl"

layout(binding = 0) readonly buffer X { VALUE x[]; };
layout(binding = 1) writeonly buffer Y { VALUE y[]; };

void main() {
    const uint at = start_of(row());
    const uint end = row() < p.rows ? p.size : 0;
    VALUE high_each = VALUE(-infinity());
    for (uint i = first(); i < end; i += step()) high_each = larger(high_each, x[p.x_offset + at + i * p.inner]);
    const float high = largest(high_each);
    VALUE sum_each = VALUE(0.0);
    for (uint i = first(); i < end; i += step()) sum_each += exp(x[p.x_offset + at + i * p.inner] - high);
    float sum = total(sum_each);
    if (!is_finite(high)) sum = not_a_number();  // exp(nan) is anything on some drivers
#if LOG
    const float rest = log(sum);
#endif
    for (uint i = first(); i < end; i += step()) {
        const uint here = at + i * p.inner;
#if LOG
        y[here] = (x[p.x_offset + here] - high) - rest;
#else
        y[here] = exp(x[p.x_offset + here] - high) / sum;
#endif
    }
}
