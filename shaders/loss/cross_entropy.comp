#version 450
#extension GL_GOOGLE_include_directive : require
#if SUBGROUPS
#extension GL_KHR_shader_subgroup_shuffle : require
#endif
// y[n, i] = -log softmax(x)[n, target[n, i], i] of x (rows / inner, classes, inner), times the class's weight with WEIGHT;
// mixed with the mean over all classes by the share p.smoothing. A negative target gives 0. A row of classes is read in
// two passes: largest element, sum of exponentials.
layout(push_constant) uniform Push {
    uint rows, size, inner, lanes, columns;
    float smoothing;
    uint x_offset, weight_offset;
} p;
#include "rows.glsl"

layout(binding = 0) readonly buffer X { VALUE x[]; };
layout(binding = 1) readonly buffer Target { int target[]; };
#if WEIGHT
layout(binding = 2) readonly buffer Weight { VALUE weight[]; };
#endif
layout(binding = WEIGHT + 2) writeonly buffer Y { float y[]; };

void main() {
    const float classes = float(p.size * WIDTH);
    const uint start = p.x_offset + start_of(row());
    const uint end = row() < p.rows ? p.size : 0;
    VALUE high_each = VALUE(-infinity());
    for (uint c = first(); c < end; c += step()) high_each = larger(high_each, x[start + c * p.inner]);
    const float high = largest(high_each);
    VALUE sum = VALUE(0.0);
    VALUE weights = VALUE(0.0);
    VALUE products = VALUE(0.0);
    for (uint c = first(); c < end; c += step()) {
        const VALUE value = x[start + c * p.inner];
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
#if WEIGHT
        const float of_all = total(weights);
#else
        const float of_all = classes;
#endif
        value = p.smoothing / classes * (of_all * level - total(products));
    }
    if (first() > 0 || row() >= p.rows) return;
    const int wanted = target[row()];
    if (wanted < 0) {
        y[row()] = 0.0;
    } else if (!is_finite(high)) {  // exp(nan) is anything on some drivers
        y[row()] = not_a_number();
    } else {
        float own = level - ONE_OF(x, start * WIDTH + uint(wanted) * p.inner);
#if WEIGHT
        own *= ONE_OF(weight, p.weight_offset * WIDTH + uint(wanted));
#endif
        y[row()] = (1.0 - p.smoothing) * own + value;
    }
}
