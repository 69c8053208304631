#version 450
#extension GL_GOOGLE_include_directive : require
#include "math/exponential.glsl"
// The gradient of lstm.comp. g holds the gradients of the new hidden state and of the new cell, x the sum of both
// terms of the gates. y is the gradient of x (rows, 4, size), then that of the old cell (rows, size). RULE and
// GRADIENT: those of dl4all/ops/rnn/cells.py.
layout(local_size_x = 128) in;
layout(binding = 0) readonly buffer G { float g[]; };
layout(binding = 1) readonly buffer X { float x[]; };
layout(binding = 2) readonly buffer Cell { float old[]; };
layout(binding = 3) writeonly buffer Y { float y[]; };
layout(push_constant) uniform Push {
    uint n, size, g_offset, x_offset, cell_offset;
} p;

void main() {
    const uint step = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
    for (uint i = gl_GlobalInvocationID.x; i < p.n; i += step) {
        const uint gate = i / p.size * 4 * p.size + i % p.size;
        const uint x_at = p.x_offset + gate;
        const float x0 = x[x_at], x1 = x[x_at + p.size], x2 = x[x_at + 2 * p.size], x3 = x[x_at + 3 * p.size];
        const float h0 = 0.0, h1 = 0.0, h2 = 0.0, h3 = 0.0;
        const float cell = old[p.cell_offset + i];
        RULE
        const float grad = g[p.g_offset + i];
        float grad_cell = g[p.g_offset + p.n + i];
        GRADIENT
        y[gate] = dx0;
        y[gate + p.size] = dx1;
        y[gate + 2 * p.size] = dx2;
        y[gate + 3 * p.size] = dx3;
        y[4 * p.n + i] = grad_cell;
    }
}
