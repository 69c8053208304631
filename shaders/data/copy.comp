#version 450
// y = x, both strided with RANK axes. WORD is uint for elements of 4 bytes, uvec2 for those of 8, and uvec4 for several
// at once. What lies between the elements of y stays as it is.
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
            const uint rest = left / p.sizes[axis];
            const uint place = left - rest * p.sizes[axis];
            from += place * p.x_strides[axis];
            to += place * p.y_strides[axis];
            left = rest;
        }
        y[to + left * p.y_strides[RANK - AXES]] = x[from + left * p.x_strides[RANK - AXES]];
    }
}
