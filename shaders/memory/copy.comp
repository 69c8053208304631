#version 450
#extension GL_GOOGLE_include_directive : require
// y = x, both strided with RANK axes. WORD is uint for elements of 4 bytes, uvec2 for those of 8, and uvec4 for several
// at once. What lies between the elements of y stays as it is.
#include "divide.glsl"

layout(local_size_x = 128) in;
layout(constant_id = 0) const uint AXES = RANK;  // the last of the RANK; those in front have size 1
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
        uint from = p.x_offset, to = p.y_offset, left = i;
        for (int axis = RANK - 1; axis > RANK - int(AXES); --axis) {
            const uvec2 found = divided(left, p.sizes[axis]);
            from += found.y * p.x_strides[axis];
            to += found.y * p.y_strides[axis];
            left = found.x;
        }
        y[to + left * p.y_strides[RANK - AXES]] = x[from + left * p.x_strides[RANK - AXES]];
    }
}
