#version 450
#extension GL_GOOGLE_include_directive : require
// The gradient of cross_entropy.comp with respect to x: (softmax - what the target asks for) * g, 0 where the target is
// negative. With WEIGHT the classes' weights lie behind the elements of g, since every device binds four buffers only.
const uint SIZE = 64;
const uint TX = SIZE / LANES;
layout(local_size_x = 64) in;
layout(binding = 0) readonly buffer G { float g[]; };
layout(binding = 1) readonly buffer X { float x[]; };
layout(binding = 2) readonly buffer Target { int target[]; };
layout(binding = 3) writeonly buffer Y { float y[]; };
layout(push_constant) uniform Push {
    uint rows, classes, inner;
    float smoothing;
    uint g_offset, x_offset;
} p;
#include "rows.glsl"

float weight(uint c) {
#if WEIGHT
    return g[p.g_offset + p.rows + c];
#else
    return 1.0;
#endif
}

void main() {
    const uint place = gl_LocalInvocationID.x % TX;
    const uint lane = gl_LocalInvocationID.x / TX;
    for (uint block = gl_WorkGroupID.x; block * TX < p.rows; block += gl_NumWorkGroups.x) {
        const uint row = block * TX + place;
        const uint first = row / p.inner * p.classes * p.inner + row % p.inner;
        const uint end = row < p.rows ? p.classes : 0;
        const int wanted = row < p.rows ? target[row] : -1;
        float high = MINUS_INFINITY;
        for (uint c = lane; c < end; c += LANES) high = larger(high, x[p.x_offset + first + c * p.inner]);
        high = largest(high);
        float sum = 0.0;
        float weights = 0.0;
        for (uint c = lane; c < end; c += LANES) {
            sum += exp(x[p.x_offset + first + c * p.inner] - high);
            weights += weight(c);
        }
        sum = total(sum);
        weights = total(weights);
        if (isnan(high) || isinf(high)) sum = NOT_A_NUMBER;
        const float gradient = end > 0 ? g[p.g_offset + row] : 0.0;
        const float own = wanted < 0 ? 0.0 : (1.0 - p.smoothing) * weight(uint(wanted));
        const float share = p.smoothing / float(p.classes);
        const float factor = own + share * weights;
        for (uint c = lane; c < end; c += LANES) {
            float value = exp(x[p.x_offset + first + c * p.inner] - high) / sum * factor - share * weight(c);
            if (int(c) == wanted) value -= own;
            y[first + c * p.inner] = wanted < 0 ? 0.0 : value * gradient;
        }
    }
}
