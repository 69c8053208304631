#version 450
#extension GL_GOOGLE_include_directive : require
#if SUBGROUPS
#extension GL_KHR_shader_subgroup_shuffle : require
#endif
// The gradient of rows.comp with respect to x. Mean and deviation are computed again: a buffer for them would exceed the
// four that some devices bind.
layout(push_constant) uniform Push {
    uint rows, size, inner, lanes, columns;
    uint channels, channel_elements;
    float eps;
    uint g_offset, x_offset, weight_offset;
} p;
#include "rows.glsl"
#include "channels.glsl"

layout(binding = 0) readonly buffer G { VALUE g[]; };
layout(binding = 1) readonly buffer X { VALUE x[]; };
#if WEIGHT
layout(binding = 2) readonly buffer Weight { VALUE weight[]; };
#endif
layout(binding = WEIGHT + 2) writeonly buffer Y { VALUE y[]; };

VALUE weighted(uint start, uint i, uint channel) {
#if WEIGHT
    return g[p.g_offset + start + i] * OF_CHANNEL(weight, p.weight_offset, channel, i);
#else
    return g[p.g_offset + start + i];
#endif
}

void main() {
    const uint start = row() * p.size;
    const uint end = row() < p.rows ? p.size : 0;
    const float count = float(p.size * WIDTH);
    const uint channel = channel_of(start);
    float mean = 0.0;
#if CENTER
    VALUE sum = VALUE(0.0);
    for (uint i = first(); i < end; i += step()) sum += x[p.x_offset + start + i];
    mean = total(sum) / count;
#endif
    VALUE squares = VALUE(0.0);
    VALUE gradients = VALUE(0.0);
    VALUE products = VALUE(0.0);
    for (uint i = first(); i < end; i += step()) {
        const VALUE d = x[p.x_offset + start + i] - mean;
        const VALUE gradient = weighted(start, i, channel);
        squares += d * d;
        gradients += gradient;
        products += gradient * d;
    }
    const float scale = 1.0 / sqrt(total(squares) / count + p.eps);
#if CENTER
    const float mean_term = total(gradients) / count;
#else
    const float mean_term = 0.0;
#endif
    const float scale_term = total(products) * scale / count;
    for (uint i = first(); i < end; i += step()) {
        const VALUE normalised = (x[p.x_offset + start + i] - mean) * scale;
        y[start + i] = scale * (weighted(start, i, channel) - mean_term - normalised * scale_term);
    }
}
