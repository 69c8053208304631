#version 450
#extension GL_GOOGLE_include_directive : require
#if SUBGROUPS == 2
#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#elif SUBGROUPS
#extension GL_KHR_shader_subgroup_shuffle : require
#endif
// Softmax, or with LOG log-softmax, along the middle axis of x (outer, size, inner), in three passes: largest element,
// sum of exponentials, result.
layout(push_constant) uniform Push {
    uint rows, size, inner, lanes, columns, x_offset;
#ifdef EPILOGUE
    EPILOGUE_PUSH
#endif
#ifdef PROLOGUE
    PROLOGUE_PUSH
#endif
} p;
#define FIRST_OPERAND 2
#include "epilogue.glsl"
#include "rows.glsl"

layout(binding = 0) readonly buffer X { VALUE x[]; };
layout(binding = 1) writeonly buffer Y { VALUE y[]; };

#define SOURCE(i) x[p.x_offset + i]
#define SOURCE_FOURS FOURS
#include "prologue.glsl"
#define LOAD(i) prologue(row_start + (i) * p.inner)

void main() {
    SKIP_NO_ROW();
    const uint row_start = start_of(row());
    const uint end = row() < p.rows ? p.size : 0;
    KEEP_ROW(kept, LOAD)
    VALUE my_high = VALUE(-infinity());
    EACH(k, i) my_high = larger(my_high, KEPT(kept, LOAD, k, i));
    const float high = largest(my_high);
    VALUE my_sum = VALUE(0.0);
    EACH(k, i) my_sum += in_row(i, exp(KEPT(kept, LOAD, k, i) - high));
    float sum = total(my_sum);
    if (!is_finite(high)) sum = not_a_number();  // exp(nan) is undefined on some drivers
#if LOG
    const float log_sum = log(sum);
#endif
    EACH(k, i) {
#if LOG
        const VALUE value = (KEPT(kept, LOAD, k, i) - high) - log_sum;
#else
        const VALUE value = exp(KEPT(kept, LOAD, k, i) - high) / sum;
#endif
        if (IN_ROW(i)) y[row_start + i * p.inner] = epilogue_value(value, row_start + i * p.inner);
    }
}
