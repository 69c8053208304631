#version 450
#extension GL_GOOGLE_include_directive : require
#if SUBGROUPS == 2
#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#elif SUBGROUPS
#extension GL_KHR_shader_subgroup_shuffle : require
#endif
// The gradient of softmax, y * (g - sum(g * y)), or with LOG of log-softmax, g - exp(y) * sum(g), along
// the middle axis of g and y (outer, size, inner).
layout(push_constant) uniform Push {
    uint rows, size, inner, lanes, columns, g_offset, y_offset;
#ifdef EPILOGUE
    EPILOGUE_PUSH
#endif
#ifdef PROLOGUE
    PROLOGUE_PUSH
#endif
} p;
#define FIRST_OPERAND 3
#include "epilogue.glsl"
#include "rows.glsl"

layout(binding = 0) readonly buffer G { VALUE g[]; };
layout(binding = 1) readonly buffer Y { VALUE y[]; };
layout(binding = 2) writeonly buffer Z { VALUE z[]; };

#define SOURCE(i) g[p.g_offset + i]
#define SOURCE_FOURS FOURS
#include "prologue.glsl"
#define LOAD_G(i) prologue(row_start + (i) * p.inner)
#define LOAD_Y(i) y[p.y_offset + row_start + (i) * p.inner]

void main() {
    SKIP_NO_ROW();
    const uint row_start = start_of(row());
    const uint end = row() < p.rows ? p.size : 0;
    KEEP_ROW(kept_g, LOAD_G)
    KEEP_ROW(kept_y, LOAD_Y)
    VALUE my_sum = VALUE(0.0);
    EACH(k, i) {
#if LOG
        my_sum += in_row(i, KEPT(kept_g, LOAD_G, k, i));
#else
        my_sum += in_row(i, KEPT(kept_g, LOAD_G, k, i) * KEPT(kept_y, LOAD_Y, k, i));
#endif
    }
    const float sum = total(my_sum);
    EACH(k, i) {
#if LOG
        const VALUE value = KEPT(kept_g, LOAD_G, k, i) - exp(KEPT(kept_y, LOAD_Y, k, i)) * sum;
#else
        const VALUE value = KEPT(kept_y, LOAD_Y, k, i) * (KEPT(kept_g, LOAD_G, k, i) - sum);
#endif
        if (IN_ROW(i)) z[row_start + i * p.inner] = epilogue_value(value, row_start + i * p.inner);
    }
}
