#version 450
#extension GL_GOOGLE_include_directive : require
#include "math/exponential.glsl"
// The pointwise part of an LSTM's step. x and h (rows, 4, size) are the terms of the gates from the input and from
// the hidden state, in the order input, forget, new, output; y is the new hidden state (rows, size), then the new
// cell.
layout(local_size_x = 128) in;
layout(binding = 0) readonly buffer X { float x[]; };
layout(binding = 1) readonly buffer H { float h[]; };
layout(binding = 2) readonly buffer Cell { float cell[]; };
layout(binding = 3) writeonly buffer Y { float y[]; };
layout(push_constant) uniform Push {
    uint n, size, x_offset, h_offset, cell_offset;
} p;

void main() {
    const uint step = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
    for (uint i = gl_GlobalInvocationID.x; i < p.n; i += step) {
        const uint gate = i / p.size * 4 * p.size + i % p.size;
        float gates[4];
        for (uint k = 0; k < 4; ++k) {
            gates[k] = x[p.x_offset + gate + k * p.size] + h[p.h_offset + gate + k * p.size];
        }
        const float new_cell = sigmoidf(gates[1]) * cell[p.cell_offset + i] + sigmoidf(gates[0]) * tanhf(gates[2]);
        y[i] = sigmoidf(gates[3]) * tanhf(new_cell);
        y[p.n + i] = new_cell;
    }
}
