#version 450
#extension GL_GOOGLE_include_directive : require
#include "philox.glsl"
// Uniform fill: n numbers in [low, low + width). Each counter gives four numbers.

layout(local_size_x = 128) in;
layout(binding = 0) writeonly buffer Y { float y[]; };
layout(push_constant) uniform Push {
    uint n;
    uint y_offset;
    uvec2 key, start;
    float low, width, largest;
} p;

void main() {
    const uint step = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
    for (uint j = gl_GlobalInvocationID.x; j < (p.n + 3) / 4; j += step) {
        const uvec4 words = random_words(p.key, p.start, j);
        for (uint k = 0; k < 4 && 4 * j + k < p.n; ++k) {
            // precise forbids fusing, which would round differently. The sum may round up to the excluded end.
            precise float scaled = unit(words[k]) * p.width;
            precise float shifted = p.low + scaled;
            y[p.y_offset + 4 * j + k] = min(shifted, p.largest);
        }
    }
}
