#version 450
// Indices as int64; -1 stays -1.
layout(local_size_x = 128) in;
layout(binding = 0) readonly buffer X { uint x[]; };
layout(binding = 1) writeonly buffer Y { uvec2 y[]; };
layout(push_constant) uniform Push {
    uint n, x_offset;
} p;

void main() {
    const uint step = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
    for (uint i = gl_GlobalInvocationID.x; i < p.n; i += step) {
        const uint index = x[p.x_offset + i];
        y[i] = uvec2(index, uint(int(index) >> 31));
    }
}
