#version 450
#extension GL_GOOGLE_include_directive : require
#if SUBGROUPS
#extension GL_KHR_shader_subgroup_shuffle : require
#endif
// The gradient of cross_entropy.comp with respect to x: (softmax - what the target asks for) * g, 0 where the target is
// negative. With WEIGHT the classes' weights lie behind the elements of g, since every device binds four buffers only.
layout(push_constant) uniform Push {
    uint rows, size, inner, lanes, columns;
    float smoothing;
    uint g_offset, x_offset;
} p;
#include "rows.glsl"

layout(binding = 0) readonly buffer G { float g[]; };
layout(binding = 1) readonly buffer X { VALUE x[]; };
layout(binding = 2) readonly buffer Target { int target[]; };
layout(binding = 3) writeonly buffer Y { VALUE y[]; };

#if WEIGHT
float weight_of(uint place) {
    return g[p.g_offset + p.rows + place];
}
#else
float weight_of(uint place) {
    return 1.0;
}
#endif

#if FOURS
vec4 weight(uint c) {
    return vec4(weight_of(4 * c), weight_of(4 * c + 1), weight_of(4 * c + 2), weight_of(4 * c + 3));
}

bvec4 is(uint c, int wanted) {
    return equal(ivec4(4 * c) + ivec4(0, 1, 2, 3), ivec4(wanted));
}
#else
float weight(uint c) {
    return weight_of(c);
}

bool is(uint c, int wanted) {
    return int(c) == wanted;
}
#endif

void main() {
    const uint start = start_of(row());
    const uint end = row() < p.rows ? p.size : 0;
    VALUE high_each = VALUE(-infinity());
    for (uint c = first(); c < end; c += step()) high_each = larger(high_each, x[p.x_offset + start + c * p.inner]);
    const float high = largest(high_each);
    VALUE sum_each = VALUE(0.0);
    VALUE weights = VALUE(0.0);
    for (uint c = first(); c < end; c += step()) {
        sum_each += exp(x[p.x_offset + start + c * p.inner] - high);
        weights += weight(c);
    }
    float sum = total(sum_each);
    const float of_all = total(weights);
    if (row() >= p.rows) return;
    if (!is_finite(high)) sum = not_a_number();
    const int wanted = target[row()];
    const float gradient = g[p.g_offset + row()];
    const float own = wanted < 0 ? 0.0 : (1.0 - p.smoothing) * weight_of(uint(wanted));
    const float share = p.smoothing / float(p.size * WIDTH);
    const float factor = own + share * of_all;
    for (uint c = first(); c < end; c += step()) {
        const VALUE all = exp(x[p.x_offset + start + c * p.inner] - high) / sum * factor - share * weight(c);
        const VALUE value = mix(all, all - own, is(c, wanted)) * gradient;
        y[start + c * p.inner] = wanted < 0 ? VALUE(0.0) : value;
    }
}
