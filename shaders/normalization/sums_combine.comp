#version 450
// The sum of x (slices, n) over the slices.
layout(local_size_x = 64) in;
layout(binding = 0) readonly buffer X { float x[]; };
layout(binding = 1) writeonly buffer Y { float y[]; };
layout(push_constant) uniform Push {
    uint n, slices;
} p;

void main() {
    const uint step = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
    for (uint i = gl_GlobalInvocationID.x; i < p.n; i += step) {
        float sum = 0.0;
        for (uint s = 0; s < p.slices; ++s) sum += x[s * p.n + i];
        y[i] = sum;
    }
}
