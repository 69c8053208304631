#version 450
#extension GL_GOOGLE_include_directive : require
#include "math/exponential.glsl"
// The gradient of gru.comp. g holds the gradient of the new hidden state and then the old hidden state: a buffer of
// its own would be one more than every device can bind. y is the gradient of x (rows, 3, size), then that of h, then
// that of the old hidden state. RULE and GRADIENT: those of dl4all/ops/rnn/cells.py.
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
        float grad = g[i];
        const float hidden = g[p.n + i];
        const float x0 = x[x_at], x1 = x[x_at + p.size], x2 = x[x_at + 2 * p.size];
        const float h0 = h[h_at], h1 = h[h_at + p.size], h2 = h[h_at + 2 * p.size];
        RULE
        GRADIENT
        y[gate] = dx0;
        y[gate + p.size] = dx1;
        y[gate + 2 * p.size] = dx2;
        y[3 * p.n + gate] = dx0;
        y[3 * p.n + gate + p.size] = dx1;
        y[3 * p.n + gate + 2 * p.size] = dh2;
        y[6 * p.n + i] = grad;
    }
}
