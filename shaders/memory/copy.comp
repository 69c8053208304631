#version 450
#extension GL_GOOGLE_include_directive : require
// y = x, both strided with RANK axes. WORD is uint for elements of 4 bytes, uvec2 for elements of 8 bytes, and uvec4
// for several elements at a time. The memory between the elements of y does not change.
#include "divide.glsl"

layout(local_size_x = 128) in;
layout(constant_id = 0) const uint AXES = RANK;  // number of axes in use, the last ones; those in front have size 1
layout(binding = 0) readonly buffer X { WORD x[]; };
layout(binding = 1) writeonly buffer Y { WORD y[]; };
layout(push_constant) uniform Push {
    uint n, x_offset, y_offset;
    uint sizes[RANK];
    uint x_strides[RANK];
    uint y_strides[RANK];
} p;

void main() {
    const uint step = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
    for (uint i = gl_GlobalInvocationID.x; i < p.n; i += step) {
        uint x_index = p.x_offset, y_index = p.y_offset, remaining = i;
        for (int axis = RANK - 1; axis > RANK - int(AXES); --axis) {
            const uvec2 quotient_rest = divided(remaining, p.sizes[axis]);
            x_index += quotient_rest.y * p.x_strides[axis];
            y_index += quotient_rest.y * p.y_strides[axis];
            remaining = quotient_rest.x;
        }
        y[y_index + remaining * p.y_strides[RANK - AXES]] = x[x_index + remaining * p.x_strides[RANK - AXES]];
    }
}
