#version 450
#extension GL_GOOGLE_include_directive : require
#include "math/exponential.glsl"
// The gradient of gru.comp. g holds that of the new hidden state and behind it the old hidden state, which takes a buffer
// less than there are on every device. y is the gradient of x (rows, 3, size), that of h, and that of the old hidden state.
layout(local_size_x = 128) in;
layout(binding = 0) readonly buffer G { float g[]; };
layout(binding = 1) readonly buffer X { float x[]; };
layout(binding = 2) readonly buffer H { float h[]; };
layout(binding = 3) writeonly buffer Y { float y[]; };
layout(push_constant) uniform Push {
    uint n, size, x_offset, h_offset;
} p;

void main() {
    const uint step = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
    for (uint i = gl_GlobalInvocationID.x; i < p.n; i += step) {
        const uint at = i / p.size * 3 * p.size + i % p.size;
        const uint ax = p.x_offset + at;
        const uint ah = p.h_offset + at;
        const float of_result = g[i];
        const float before = g[p.n + i];
        const float share = h[ah + 2 * p.size];
        const float reset = sigmoidf(x[ax] + h[ah]);
        const float update = sigmoidf(x[ax + p.size] + h[ah + p.size]);
        const float fresh = tanhf(x[ax + 2 * p.size] + reset * share);
        const float of_fresh = of_result * (1.0 - update) * (1.0 - fresh * fresh);
        const float of_reset = of_fresh * share * (reset * (1.0 - reset));
        const float of_update = of_result * (before - fresh) * (update * (1.0 - update));
        y[at] = of_reset;
        y[at + p.size] = of_update;
        y[at + 2 * p.size] = of_fresh;
        y[3 * p.n + at] = of_reset;
        y[3 * p.n + at + p.size] = of_update;
        y[3 * p.n + at + 2 * p.size] = of_fresh * reset;
        y[6 * p.n + i] = of_result * update;
    }
}
