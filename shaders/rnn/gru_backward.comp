#version 450
#extension GL_GOOGLE_include_directive : require
#include "math/exponential.glsl"
// The gradient of gru.comp. g holds the gradient of the new hidden state and then the old hidden state: a buffer of
// its own would be one more than every device can bind. y is the gradient of x (rows, 3, size), then that of h, then
// that of the old hidden state.
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
        const uint gate = i / p.size * 3 * p.size + i % p.size;
        const uint x_at = p.x_offset + gate;
        const uint h_at = p.h_offset + gate;
        const float grad = g[i];
        const float old_hidden = g[p.n + i];
        const float h_new = h[h_at + 2 * p.size];
        const float reset = sigmoidf(x[x_at] + h[h_at]);
        const float update = sigmoidf(x[x_at + p.size] + h[h_at + p.size]);
        const float candidate = tanhf(x[x_at + 2 * p.size] + reset * h_new);
        const float grad_candidate = grad * (1.0 - update) * (1.0 - candidate * candidate);
        const float grad_reset = grad_candidate * h_new * (reset * (1.0 - reset));
        const float grad_update = grad * (old_hidden - candidate) * (update * (1.0 - update));
        y[gate] = grad_reset;
        y[gate + p.size] = grad_update;
        y[gate + 2 * p.size] = grad_candidate;
        y[3 * p.n + gate] = grad_reset;
        y[3 * p.n + gate + p.size] = grad_update;
        y[3 * p.n + gate + 2 * p.size] = grad_candidate * reset;
        y[6 * p.n + i] = grad * update;
    }
}
