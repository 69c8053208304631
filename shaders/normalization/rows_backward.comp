#version 450
#extension GL_GOOGLE_include_directive : require
#if SUBGROUPS == 2
#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#elif SUBGROUPS
#extension GL_KHR_shader_subgroup_shuffle : require
#endif
// The gradient of rows.comp with respect to x. Mean and deviation are computed again: a buffer for them would exceed the
// four that some devices bind. With GIVEN, without a weight, they are read: means, then scales.
layout(push_constant) uniform Push {
    uint rows, size, inner, lanes, columns;
    uint channels, channel_elements;
    float eps;
    uint g_offset, x_offset, weight_offset;
#ifdef EPILOGUE
    EPILOGUE_PUSH
#endif
#ifdef PROLOGUE
    PROLOGUE_PUSH
#endif
} p;
#define FIRST_OPERAND (WEIGHT + GIVEN + 3)
#include "epilogue.glsl"
#include "rows.glsl"
#include "channels.glsl"

layout(binding = 0) readonly buffer G { VALUE g[]; };
layout(binding = 1) readonly buffer X { VALUE x[]; };
#if WEIGHT
layout(binding = 2) readonly buffer Weight { VALUE weight[]; };
#endif
#if GIVEN
layout(binding = 2) readonly buffer Statistics { float statistics[]; };
#endif
layout(binding = WEIGHT + GIVEN + 2) writeonly buffer Y { VALUE y[]; };

#define SOURCE(i) g[p.g_offset + i]
#define SOURCE_FOURS FOURS
#include "prologue.glsl"
#define LOAD_X(i) x[p.x_offset + start + (i)]
#if WEIGHT
#define LOAD_G(i) (prologue(start + (i)) * OF_CHANNEL(weight, p.weight_offset, channel, i))
#else
#define LOAD_G(i) prologue(start + (i))
#endif

void main() {
    SKIP_NO_ROW();
    const uint start = row() * p.size;
    const uint end = row() < p.rows ? p.size : 0;
    const float count = float(p.size * WIDTH);
    const uint channel = channel_of(start);
    KEEP_ROW(kept_x, LOAD_X)
    KEEP_ROW(kept_g, LOAD_G)
    float mean = 0.0;
#if GIVEN
    float scale = 0.0;
    if (row() < p.rows) {
        mean = statistics[row()];
        scale = statistics[p.rows + row()];
    }
#elif CENTER
    VALUE sum = VALUE(0.0);
    EACH(k, i) sum += in_row(i, KEPT(kept_x, LOAD_X, k, i));
    mean = total(sum) / count;
#endif
#if !GIVEN
    VALUE squares = VALUE(0.0);
#endif
    VALUE gradients = VALUE(0.0);
    VALUE products = VALUE(0.0);
    EACH(k, i) {
        const VALUE d = in_row(i, KEPT(kept_x, LOAD_X, k, i) - mean);
        const VALUE gradient = in_row(i, KEPT(kept_g, LOAD_G, k, i));
#if !GIVEN
        squares += d * d;
#endif
        gradients += gradient;
        products += gradient * d;
    }
#if !GIVEN
    const float scale = 1.0 / sqrt(total(squares) / count + p.eps);
#endif
#if CENTER
    const float mean_term = total(gradients) / count;
#else
    const float mean_term = 0.0;
#endif
    const float scale_term = total(products) * scale / count;
    EACH(k, i) {
        const VALUE normalised = (KEPT(kept_x, LOAD_X, k, i) - mean) * scale;
        const VALUE value = scale * (KEPT(kept_g, LOAD_G, k, i) - mean_term - normalised * scale_term);
        if (IN_ROW(i)) y[start + i] = epilogue_value(value, start + i);
    }
}
