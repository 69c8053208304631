#version 450
#extension GL_GOOGLE_include_directive : require
#if SUBGROUPS
#extension GL_KHR_shader_subgroup_shuffle : require
#endif
// The gradient of cross_entropy.comp with respect to x: (softmax - target distribution) * g, and 0 where the target is
// negative. With WEIGHT the weights of the classes follow the elements of g: some devices bind no more than four buffers.
layout(push_constant) uniform Push {
    uint rows, size, inner, lanes, columns;
    float smoothing;
    uint g_offset, x_offset;
#ifdef EPILOGUE
    EPILOGUE_PUSH
#endif
#ifdef PROLOGUE
    PROLOGUE_PUSH
#endif
} p;
#define FIRST_OPERAND 4
#include "epilogue.glsl"
#include "rows.glsl"

layout(binding = 0) readonly buffer G { float g[]; };
layout(binding = 1) readonly buffer X { VALUE x[]; };
layout(binding = 2) readonly buffer Target { int target[]; };
layout(binding = 3) writeonly buffer Y { VALUE y[]; };

#define SOURCE(i) g[p.g_offset + i]
#define SOURCE_FOURS 0
#include "prologue.glsl"

#if WEIGHT
float weight_of(uint c) {
    return g[p.g_offset + p.rows + c];
}
#else
float weight_of(uint c) {
    return 1.0;
}
#endif

#if FOURS
vec4 weight(uint c) {
    return vec4(weight_of(4 * c), weight_of(4 * c + 1), weight_of(4 * c + 2), weight_of(4 * c + 3));
}

bvec4 is_class(uint c, int target_class) {
    return equal(ivec4(4 * c) + ivec4(0, 1, 2, 3), ivec4(target_class));
}
#else
float weight(uint c) {
    return weight_of(c);
}

bool is_class(uint c, int target_class) {
    return int(c) == target_class;
}
#endif

void main() {
    const uint start = start_of(row());
    const uint end = row() < p.rows ? p.size : 0;
    VALUE partial_max = VALUE(-infinity());
    for (uint c = first(); c < end; c += step()) partial_max = larger(partial_max, x[p.x_offset + start + c * p.inner]);
    const float max_score = largest(partial_max);
    VALUE partial_sum = VALUE(0.0);
    VALUE weights = VALUE(0.0);
    for (uint c = first(); c < end; c += step()) {
        partial_sum += exp(x[p.x_offset + start + c * p.inner] - max_score);
        weights += weight(c);
    }
    float sum = total(partial_sum);
    const float weight_sum = total(weights);
    if (row() >= p.rows) return;
    if (!is_finite(max_score)) sum = not_a_number();
    const int target_class = target[row()];
    const float gradient = prologue(row());
    const float target_weight = target_class < 0 ? 0.0 : (1.0 - p.smoothing) * weight_of(uint(target_class));
    const float share = p.smoothing / float(p.size * WIDTH);
    const float factor = target_weight + share * weight_sum;
    for (uint c = first(); c < end; c += step()) {
        const VALUE others = exp(x[p.x_offset + start + c * p.inner] - max_score) / sum * factor - share * weight(c);
        const VALUE value = mix(others, others - target_weight, is_class(c, target_class)) * gradient;
        y[start + c * p.inner] = epilogue_value(target_class < 0 ? VALUE(0.0) : value, start + c * p.inner);
    }
}
