#version 450
#extension GL_GOOGLE_include_directive : require
#if SUBGROUPS == 2
#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#elif SUBGROUPS
#extension GL_KHR_shader_subgroup_shuffle : require
#endif
// Row normalisation of x (rows, size): minus the mean, over the standard deviation; without CENTER, over the root mean
// square. With WEIGHT the result is multiplied by the weight of the element's channel, with BIAS its bias is
// added. Three passes: mean, variance, result. FOLD: y is only the means of the rows, then their scales, which the sums
// over channels need. STATISTICS: a binding for these beside y.
layout(push_constant) uniform Push {
    uint rows, size, inner, lanes, columns;
    uint channels, channel_elements;
    float eps;
    uint x_offset, weight_offset, bias_offset;
#ifdef EPILOGUE
    EPILOGUE_PUSH
#endif
#ifdef PROLOGUE
    PROLOGUE_PUSH
#endif
} p;
#define FIRST_OPERAND (WEIGHT + BIAS + 2)
#include "epilogue.glsl"
#include "rows.glsl"
#include "channels.glsl"

layout(binding = 0) readonly buffer X { VALUE x[]; };
#if WEIGHT
layout(binding = 1) readonly buffer Weight { VALUE weight[]; };
#endif
#if BIAS
layout(binding = WEIGHT + 1) readonly buffer Bias { VALUE bias[]; };
#endif
#if FOLD
layout(binding = 1) writeonly buffer Y { float y[]; };
#else
layout(binding = WEIGHT + BIAS + 1) writeonly buffer Y { VALUE y[]; };
#endif

#ifdef STATISTICS
layout(binding = STATISTICS) writeonly buffer Statistics { float statistics[]; };
#endif

#define SOURCE(i) x[p.x_offset + i]
#define SOURCE_FOURS FOURS
#include "prologue.glsl"
#define LOAD(i) prologue(start + (i))

void main() {
    SKIP_NO_ROW();
    const uint start = row() * p.size;
    const uint end = row() < p.rows ? p.size : 0;
    const float count = float(p.size * WIDTH);
    KEEP_ROW(kept, LOAD)
    float mean = 0.0;
#if CENTER
    VALUE sum = VALUE(0.0);
    EACH(k, i) sum += in_row(i, KEPT(kept, LOAD, k, i));
    mean = total(sum) / count;
#endif
    VALUE squares = VALUE(0.0);
    EACH(k, i) {
        const VALUE d = in_row(i, KEPT(kept, LOAD, k, i) - mean);
        squares += d * d;
    }
    const float scale = 1.0 / sqrt(total(squares) / count + p.eps);
#if FOLD
    if (row() < p.rows && first() == 0) {
        y[row()] = mean;
        y[p.rows + row()] = scale;
    }
#else
#ifdef STATISTICS
    if (row() < p.rows && first() == 0) {
        statistics[row()] = mean;
        statistics[p.rows + row()] = scale;
    }
#endif
    const uint channel = channel_of(start);
    EACH(k, i) {
        if (IN_ROW(i)) {
            VALUE value = (KEPT(kept, LOAD, k, i) - mean) * scale;
#if WEIGHT
            value *= OF_CHANNEL(weight, p.weight_offset, channel, i);
#endif
#if BIAS
            value += OF_CHANNEL(bias, p.bias_offset, channel, i);
#endif
            y[start + i] = epilogue_value(value, start + i);
        }
    }
#endif
}
