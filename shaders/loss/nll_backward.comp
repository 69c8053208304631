#version 450
// The gradient of nll.comp with respect to x (rows / inner, classes, inner): -g at the target, 0 elsewhere.
layout(local_size_x = 64) in;
layout(binding = 0) readonly buffer G { float g[]; };
layout(binding = 1) readonly buffer Target { int target[]; };
#if WEIGHT
layout(binding = 2) readonly buffer Weight { float weight[]; };
#endif
layout(binding = WEIGHT + 2) writeonly buffer Y { float y[]; };
layout(push_constant) uniform Push {
    uint n, classes, inner, g_offset, weight_offset;
} p;

void main() {
    const uint step = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
    for (uint i = gl_GlobalInvocationID.x; i < p.n; i += step) {
        const uint line = i / p.inner;
        const uint c = line % p.classes;
        const uint row = line / p.classes * p.inner + i % p.inner;
        float value = 0.0;
        if (target[row] == int(c)) {
            value = -g[p.g_offset + row];
#if WEIGHT
            value *= weight[p.weight_offset + c];
#endif
        }
        y[i] = value;
    }
}
