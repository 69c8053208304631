#version 450
#extension GL_GOOGLE_include_directive : require
#include "math/exponential.glsl"
// The gradient of lstm.comp. g holds the gradients of the new hidden state and of the new cell, x the sum of both
// terms of the gates. y is the gradient of x (rows, 4, size), then that of the old cell (rows, size).
layout(local_size_x = 128) in;
layout(binding = 0) readonly buffer G { float g[]; };
layout(binding = 1) readonly buffer X { float x[]; };
layout(binding = 2) readonly buffer Cell { float cell[]; };
layout(binding = 3) writeonly buffer Y { float y[]; };
layout(push_constant) uniform Push {
    uint n, size, g_offset, x_offset, cell_offset;
} p;

void main() {
    const uint step = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
    for (uint i = gl_GlobalInvocationID.x; i < p.n; i += step) {
        const uint gate = i / p.size * 4 * p.size + i % p.size;
        const float old_cell = cell[p.cell_offset + i];
        const float input_gate = sigmoidf(x[p.x_offset + gate]);
        const float forget_gate = sigmoidf(x[p.x_offset + gate + p.size]);
        const float candidate = tanhf(x[p.x_offset + gate + 2 * p.size]);
        const float output_gate = sigmoidf(x[p.x_offset + gate + 3 * p.size]);
        const float tanh_cell = tanhf(forget_gate * old_cell + input_gate * candidate);
        const float grad_hidden = g[p.g_offset + i];
        const float grad_cell = g[p.g_offset + p.n + i] + grad_hidden * output_gate * (1.0 - tanh_cell * tanh_cell);
        y[gate] = grad_cell * candidate * (input_gate * (1.0 - input_gate));
        y[gate + p.size] = grad_cell * old_cell * (forget_gate * (1.0 - forget_gate));
        y[gate + 2 * p.size] = grad_cell * input_gate * (1.0 - candidate * candidate);
        y[gate + 3 * p.size] = grad_hidden * tanh_cell * (output_gate * (1.0 - output_gate));
        y[4 * p.n + i] = grad_cell * forget_gate;
    }
}
