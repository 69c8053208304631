#version 450
// The numbers that weights of 4 bits stand for, as linear.comp has them.
#extension GL_GOOGLE_include_directive : require
#include "int4.glsl"
layout(local_size_x = 64) in;
layout(binding = 0) readonly buffer W { uvec4 w[]; };
layout(binding = 1) readonly buffer Scales { uint scales[]; };
layout(binding = 2) writeonly buffer Y { vec4 y[]; };
layout(push_constant) uniform Push { uint blocks, w_offset, scale_offset, of_scale; } p;

void main() {
    for (uint i = gl_GlobalInvocationID.x; i < p.blocks; i += gl_NumWorkGroups.x * 64) {
        const uvec4 words = w[p.w_offset / 16 + i];
        const uint at = p.scale_offset + i / p.of_scale;
        const float scale = scale_in(scales[at / 2], at);
        for (uint part = 0; part < 4; ++part) {
            y[i * 8 + part] = lower_weights(words[part]) * scale;
            y[i * 8 + part + 4] = upper_weights(words[part]) * scale;
        }
    }
}
