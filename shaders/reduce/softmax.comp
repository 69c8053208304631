#version 450
#extension GL_GOOGLE_include_directive : require
#if SUBGROUPS
#extension GL_KHR_shader_subgroup_shuffle : require
#endif
// Softmax, or with LOG log-softmax, along the middle axis of x (outer, size, inner), in three passes: largest element,
// sum of exponentials, result.
layout(push_constant) uniform Push {
    uint rows, size, inner, lanes, columns, x_offset;
} p;
#include "rows.glsl"

layout(binding = 0) readonly buffer X { VALUE x[]; };
layout(binding = 1) writeonly buffer Y { VALUE y[]; };

void main() {
    const uint row_start = start_of(row());
    const uint end = row() < p.rows ? p.size : 0;
    VALUE my_high = VALUE(-infinity());
    for (uint i = first(); i < end; i += step()) my_high = larger(my_high, x[p.x_offset + row_start + i * p.inner]);
    const float high = largest(my_high);
    VALUE my_sum = VALUE(0.0);
    for (uint i = first(); i < end; i += step()) my_sum += exp(x[p.x_offset + row_start + i * p.inner] - high);
    float sum = total(my_sum);
    if (!is_finite(high)) sum = not_a_number();  // exp(nan) is undefined on some drivers
#if LOG
    const float log_sum = log(sum);
#endif
    for (uint i = first(); i < end; i += step()) {
        const uint index = row_start + i * p.inner;
#if LOG
        y[index] = (x[p.x_offset + index] - high) - log_sum;
#else
        y[index] = exp(x[p.x_offset + index] - high) / sum;
#endif
    }
}
