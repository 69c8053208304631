#version 450
#extension GL_GOOGLE_include_directive : require
// y[n, i] = -log softmax(x)[n, target[n, i], i] of x (rows / inner, classes, inner), times the class's weight with WEIGHT;
// mixed with the mean over all classes by the share p.smoothing. A negative target gives 0. LANES invocations take one
// row of classes, in two passes: largest element, sum of exponentials.
const uint SIZE = 64;
const uint TX = SIZE / LANES;
layout(local_size_x = 64) in;
layout(binding = 0) readonly buffer X { float x[]; };
layout(binding = 1) readonly buffer Target { int target[]; };
#if WEIGHT
layout(binding = 2) readonly buffer Weight { float weight[]; };
#endif
layout(binding = WEIGHT + 2) writeonly buffer Y { float y[]; };
layout(push_constant) uniform Push {
    uint rows, classes, inner;
    float smoothing;
    uint x_offset, weight_offset;
} p;
#include "rows.glsl"

void main() {
    const uint place = gl_LocalInvocationID.x % TX;
    const uint lane = gl_LocalInvocationID.x / TX;
    for (uint block = gl_WorkGroupID.x; block * TX < p.rows; block += gl_NumWorkGroups.x) {
        const uint row = block * TX + place;
        const uint first = p.x_offset + row / p.inner * p.classes * p.inner + row % p.inner;
        const uint end = row < p.rows ? p.classes : 0;
        const int wanted = row < p.rows ? target[row] : -1;
        float high = MINUS_INFINITY;
        for (uint c = lane; c < end; c += LANES) high = larger(high, x[first + c * p.inner]);
        high = largest(high);
        float sum = 0.0;
        float weights = 0.0;
        float products = 0.0;
        for (uint c = lane; c < end; c += LANES) {
            const float value = x[first + c * p.inner];
            sum += exp(value - high);
#if WEIGHT
            weights += weight[p.weight_offset + c];
            products += value * weight[p.weight_offset + c];
#else
            products += value;
#endif
        }
        const float level = high + log(total(sum));
        float value = 0.0;
        if (p.smoothing > 0.0) {
            products = total(products);
#if WEIGHT
            weights = total(weights);
#else
            weights = float(p.classes);
#endif
            value = p.smoothing / float(p.classes) * (weights * level - products);
        }
        if (lane == 0 && row < p.rows) {
            if (wanted < 0) {
                y[row] = 0.0;
            } else if (isnan(high) || isinf(high)) {  // exp(nan) is anything on some drivers
                y[row] = NOT_A_NUMBER;
            } else {
                float own = level - x[first + uint(wanted) * p.inner];
#if WEIGHT
                own *= weight[p.weight_offset + uint(wanted)];
#endif
                y[row] = (1.0 - p.smoothing) * own + value;
            }
        }
    }
}
