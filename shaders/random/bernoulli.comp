#version 450
#extension GL_GOOGLE_include_directive : require
#include "philox.glsl"
// Bernoulli fill: y is 1 with probability x, else 0. With x_stride 1 each of the n elements has its own probability,
// with x_stride 0 all share one.

layout(local_size_x = 128) in;
layout(binding = 0) readonly buffer X { float x[]; };
layout(binding = 1) writeonly buffer Y { float y[]; };
layout(push_constant) uniform Push {
    uint n;
    uint y_offset;
    uvec2 key, start;
    uint x_offset, x_stride;
} p;

void main() {
    const uint step = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
    for (uint j = gl_GlobalInvocationID.x; j < (p.n + 3) / 4; j += step) {
        const uvec4 words = random_words(p.key, p.start, j);
        for (uint k = 0; k < 4 && 4 * j + k < p.n; ++k) {
            const uint i = 4 * j + k;
            y[p.y_offset + i] = unit(words[k]) < x[p.x_offset + i * p.x_stride] ? 1.0 : 0.0;
        }
    }
}
