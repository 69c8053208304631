#version 450
#extension GL_GOOGLE_include_directive : require
#if SUBGROUPS
#extension GL_KHR_shader_subgroup_shuffle : require
#endif
// Cross entropy of x (rows / inner, classes, inner): y[n, i] = -log softmax(x)[n, target[n, i], i], times the weight of
// the class with WEIGHT. With p.smoothing, that share of the loss is the mean over all classes. A negative target gives
// 0. Two passes over a row: its largest element, then the sum of exponentials. The largest element is subtracted from
// each before they are added: the logarithm of the sum, at most that of the number of classes, would be lost in it.
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

// A class of weight 0 does not count, even where its score is -inf.
float weighted(float x, float w) {
    return w == 0.0 ? 0.0 : x * w;
}

#if FOURS
vec4 weighted(vec4 x, vec4 w) {
    return vec4(weighted(x.x, w.x), weighted(x.y, w.y), weighted(x.z, w.z), weighted(x.w, w.w));
}
#endif

void main() {
    const float classes = float(p.size * WIDTH);
    const uint start = p.x_offset + start_of(row());
    const uint end = row() < p.rows ? p.size : 0;
    VALUE partial_max = VALUE(-infinity());
    for (uint c = first(); c < end; c += step()) partial_max = larger(partial_max, x[start + c * p.inner]);
    const float max_score = largest(partial_max);
    VALUE sum = VALUE(0.0);
    VALUE weights = VALUE(0.0);
    VALUE products = VALUE(0.0);
    for (uint c = first(); c < end; c += step()) {
        const VALUE value = x[start + c * p.inner] - max_score;
        sum += exp(value);
#if WEIGHT
        weights += weight[p.weight_offset + c];
        products += weighted(value, weight[p.weight_offset + c]);
#else
        products += value;
#endif
    }
    const float log_sum = log(total(sum));
    float smoothed = 0.0;
    if (p.smoothing > 0.0) {
#if WEIGHT
        const float weight_sum = total(weights);
#else
        const float weight_sum = classes;
#endif
        smoothed = p.smoothing / classes * (weight_sum * log_sum - total(products));
    }
    if (first() > 0 || row() >= p.rows) return;
    const int target_class = target[row()];
    if (target_class < 0) {
        y[row()] = 0.0;
    } else if (!is_finite(max_score)) {  // on some drivers exp(nan) is an arbitrary number
        y[row()] = not_a_number();
    } else {
        float target_loss = log_sum - (ONE_OF(x, start * WIDTH + uint(target_class) * p.inner) - max_score);
#if WEIGHT
        target_loss = weighted(target_loss, ONE_OF(weight, p.weight_offset * WIDTH + uint(target_class)));
#endif
        y[row()] = (1.0 - p.smoothing) * target_loss + smoothed;
    }
}
