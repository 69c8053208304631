#version 450
#extension GL_GOOGLE_include_directive : require
// The keys of the elements, or with `descending` their complements.
layout(local_size_x = 128) in;
#if BYTES == 8
layout(binding = 0) readonly buffer X { uvec2 x[]; };
layout(binding = 1) writeonly buffer Y { uvec2 y[]; };
#else
layout(binding = 0) readonly buffer X { uint x[]; };
layout(binding = 1) writeonly buffer Y { uint y[]; };
#endif
layout(push_constant) uniform Push {
    uint n, x_offset, descending;
} p;
#include "elements.glsl"

void main() {
    const uint step = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
    for (uint i = gl_GlobalInvocationID.x; i < p.n; i += step) {
        const KEY key = key_of(ELEMENT(p.x_offset + i));
#if BYTES == 8
        y[i] = p.descending != 0 ? ~key : key;
#else
        y[i] = p.descending != 0 ? ~key & MASK : key;
#endif
    }
}
