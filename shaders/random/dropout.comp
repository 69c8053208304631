#version 450
#extension GL_GOOGLE_include_directive : require
#include "philox.glsl"
// Dropout: y = x * scale, or 0 where a random word is below the threshold. With SHARED, `inner` neighbouring elements
// share a word. The gradient computes the words again, so no mask is kept.

layout(local_size_x = 128) in;
layout(binding = 0) readonly buffer X { float x[]; };
layout(binding = 1) writeonly buffer Y { float y[]; };
layout(push_constant) uniform Push {
    uint n;
    uint x_offset;
    uvec2 key, start;
    uint threshold;
    float scale;
    uint inner;
} p;

void main() {
    const uint step = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
#ifdef SHARED
    for (uint i = gl_GlobalInvocationID.x; i < p.n; i += step) {
        const uint group = i / p.inner;
        const uint word = random_words(p.key, p.start, group / 4)[group % 4];
        y[i] = word < p.threshold ? 0.0 : x[p.x_offset + i] * p.scale;
    }
#else
    for (uint j = gl_GlobalInvocationID.x; j < (p.n + 3) / 4; j += step) {
        const uvec4 words = random_words(p.key, p.start, j);
        for (uint k = 0; k < 4 && 4 * j + k < p.n; ++k) {
            const uint i = 4 * j + k;
            y[i] = words[k] < p.threshold ? 0.0 : x[p.x_offset + i] * p.scale;
        }
    }
#endif
}
