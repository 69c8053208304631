#version 450
// The indices of the first `keep` pairs of each row.
layout(local_size_x = 128) in;
layout(binding = 0) readonly buffer X { uvec2 x[]; };
layout(binding = 1) writeonly buffer Y { uint y[]; };
layout(push_constant) uniform Push {
    uint n, size, keep;  // elements of the result, of a row of the input and of the result
} p;

void main() {
    const uint step = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
    for (uint e = gl_GlobalInvocationID.x; e < p.n; e += step) {
        const uint row = e / p.keep;
        y[e] = x[row * p.size + e - row * p.keep].y;
    }
}
