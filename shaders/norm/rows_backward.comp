#version 450
#extension GL_GOOGLE_include_directive : require
// The gradient of rows.comp with respect to x. Mean and deviation are computed again rather than kept, which takes a
// buffer less than there are on every device.
const uint SIZE = 64;
const uint TX = SIZE / LANES;
layout(local_size_x = 64) in;
layout(binding = 0) readonly buffer G { float g[]; };
layout(binding = 1) readonly buffer X { float x[]; };
#if WEIGHT
layout(binding = 2) readonly buffer Weight { float weight[]; };
#endif
layout(binding = WEIGHT + 2) writeonly buffer Y { float y[]; };
layout(push_constant) uniform Push {
    uint rows, columns, inner, channels;
    float eps;
    uint g_offset, x_offset, weight_offset;
} p;
#include "tree.glsl"

float weighted(uint i) {
#if WEIGHT
    return g[p.g_offset + i] * weight[p.weight_offset + i / p.inner % p.channels];
#else
    return g[p.g_offset + i];
#endif
}

void main() {
    const uint place = gl_LocalInvocationID.x % TX;
    const uint lane = gl_LocalInvocationID.x / TX;
    for (uint block = gl_WorkGroupID.x; block * TX < p.rows; block += gl_NumWorkGroups.x) {
        const uint row = block * TX + place;
        const uint first = row * p.columns;
        const uint end = row < p.rows ? p.columns : 0;
        float mean = 0.0;
#if CENTER
        float sum = 0.0;
        for (uint c = lane; c < end; c += LANES) sum += x[p.x_offset + first + c];
        mean = total(sum) / float(p.columns);
#endif
        float squares = 0.0;
        for (uint c = lane; c < end; c += LANES) {
            const float d = x[p.x_offset + first + c] - mean;
            squares += d * d;
        }
        const float scale = 1.0 / sqrt(total(squares) / float(p.columns) + p.eps);
        float gradients = 0.0;
        float products = 0.0;
        for (uint c = lane; c < end; c += LANES) {
            const float gradient = weighted(first + c);
            gradients += gradient;
            products += gradient * ((x[p.x_offset + first + c] - mean) * scale);
        }
#if CENTER
        gradients = total(gradients) / float(p.columns);
#else
        gradients = 0.0;
#endif
        products = total(products) / float(p.columns);
        for (uint c = lane; c < end; c += LANES) {
            const uint i = first + c;
            const float normalised = (x[p.x_offset + i] - mean) * scale;
            y[i] = scale * (weighted(i) - gradients - normalised * products);
        }
    }
}
