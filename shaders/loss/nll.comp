#version 450
// Negative log-likelihood: y[n, i] = -x[n, target[n, i], i], times the weight of the class with WEIGHT; 0 where the
// target is negative.
layout(local_size_x = 64) in;
layout(binding = 0) readonly buffer X { float x[]; };
layout(binding = 1) readonly buffer Target { int target[]; };
#if WEIGHT
layout(binding = 2) readonly buffer Weight { float weight[]; };
#endif
layout(binding = WEIGHT + 2) writeonly buffer Y { float y[]; };
layout(push_constant) uniform Push {
    uint rows, classes, inner, x_offset, weight_offset;
} p;

void main() {
    const uint step = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
    for (uint row = gl_GlobalInvocationID.x; row < p.rows; row += step) {
        const int c = target[row];
        float value = 0.0;
        if (c >= 0) {
            value = -x[p.x_offset + (row / p.inner * p.classes + uint(c)) * p.inner + row % p.inner];
#if WEIGHT
            value *= weight[p.weight_offset + uint(c)];
#endif
        }
        y[row] = value;
    }
}
