#version 450
// y = concatenation of a, which has p.first elements, and b.
layout(local_size_x = 64) in;
layout(binding = 0) readonly buffer A { float a[]; };
layout(binding = 1) readonly buffer B { float b[]; };
layout(binding = 2) writeonly buffer Y { float y[]; };
layout(push_constant) uniform Push {
    uint n, first, a_offset, b_offset;
} p;

void main() {
    const uint step = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
    for (uint i = gl_GlobalInvocationID.x; i < p.n; i += step) {
        y[i] = i < p.first ? a[p.a_offset + i] : b[p.b_offset + i - p.first];
    }
}
