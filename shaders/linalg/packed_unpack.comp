#version 450
// The numbers that weights in few bits stand for, as linear.comp has them; the same to the last bit on all devices.
#extension GL_GOOGLE_include_directive : require
layout(local_size_x = 64) in;
layout(binding = 0) readonly buffer W { uint w[]; };
layout(binding = 1) readonly buffer Scales { uint scales[]; };
layout(binding = 2) writeonly buffer Y { vec4 y[]; };
layout(push_constant) uniform Push { uint units, w_offset, scale_offset, of_scale; } p;
#include "packed.glsl"

void main() {
    for (uint i = gl_GlobalInvocationID.x; i < p.units; i += gl_NumWorkGroups.x * 64) {
        const uint number = i / UNITS, unit = i % UNITS;
        const uint block = p.w_offset / 4 + number * WORDS, scale = p.scale_offset + number / p.of_scale * SCALES;
        const vec2 factors = scales_of(block, scale, unit);
        const float offset = offset_of(block, scale, unit);
        for (uint part = 0; part < 4; ++part) {
            const uvec2 numbers = numbers_in(block, unit, part);
            precise const vec4 low = weights_in(numbers.x) * factors.x, high = weights_in(numbers.y) * factors.y;
            y[i * 8 + part] = low - offset;
            y[i * 8 + part + 4] = high - offset;
        }
    }
}
