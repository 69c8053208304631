#version 450
// y[y_offset + i] = x[x_offset + i] for n words. x and y may be the same buffer; the two ranges must not overlap.

layout(local_size_x = 128) in;
layout(binding = 0) readonly buffer X { uint x[]; };
layout(binding = 1) writeonly buffer Y { uint y[]; };
layout(push_constant) uniform Push {
    uint n;
    uint x_offset;
    uint y_offset;
} p;

void main() {
    const uint step = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
    for (uint i = gl_GlobalInvocationID.x; i < p.n; i += step) {
        y[p.y_offset + i] = x[p.x_offset + i];
    }
}
