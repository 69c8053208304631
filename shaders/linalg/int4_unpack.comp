#version 450
// The numbers that weights of 4 bits stand for, as linear.comp has them.
layout(local_size_x = 64) in;
layout(binding = 0) readonly buffer W { uvec4 w[]; };
layout(binding = 1) readonly buffer Scales { uint scales[]; };
layout(binding = 2) writeonly buffer Y { vec4 y[]; };
layout(push_constant) uniform Push { uint blocks, w_offset, scale_offset, of_scale; } p;

void main() {
    for (uint i = gl_GlobalInvocationID.x; i < p.blocks; i += gl_NumWorkGroups.x * 64) {
        const uvec4 words = w[p.w_offset / 16 + i];
        const uint at = p.scale_offset + i / p.of_scale;
        const vec2 pair = unpackHalf2x16(scales[at / 2]);
        const float scale = (at & 1u) == 0 ? pair.x : pair.y;
        for (uint part = 0; part < 4; ++part) {
            const uvec4 bytes = uvec4(words[part]) >> uvec4(0, 8, 16, 24);
            y[i * 8 + part] = (vec4(bytes & 15u) - 8.0) * scale;
            y[i * 8 + part + 4] = (vec4((bytes >> 4) & 15u) - 8.0) * scale;
        }
    }
}
