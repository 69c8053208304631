#version 450
// Row scatter-add: y[o, t, i] is the sum of x[o, j, i] over all j whose index is t. `plan` lists these j, sorted by t
// and then ascending, at the positions plan[t] to plan[t + 1] - 1. One invocation computes a result and adds in this
// order: no atomics, and the same sum in every run. VALUE is float, or vec4 for four elements at once; `inner` and
// `x_offset` count values.

layout(local_size_x = 128) in;
layout(binding = 0) readonly buffer X { VALUE x[]; };
layout(binding = 1) readonly buffer Plan { uint plan[]; };
layout(binding = 2) writeonly buffer Y { VALUE y[]; };
layout(push_constant) uniform Push {
    uint n, x_offset, size, count, inner;
} p;

void main() {
    const uint step = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
    for (uint e = gl_GlobalInvocationID.x; e < p.n; e += step) {
        const uint row = e / p.inner;
        const uint i = e - row * p.inner;
        const uint o = row / p.size;
        const uint t = row - o * p.size;
        VALUE sum = VALUE(0.0);
        for (uint k = plan[t]; k < plan[t + 1]; ++k) {
            sum += x[p.x_offset + (o * p.count + plan[k]) * p.inner + i];
        }
        y[e] = sum;
    }
}
