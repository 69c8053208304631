#version 450
#extension GL_GOOGLE_include_directive : require
#include "math/exponential.glsl"
// One time step of a recurrent layer, all but the product. x (rows, GATES, size) are the terms of the gates from the
// input, h those from the hidden state, in PyTorch's order. Old and Fresh are the same buffer, the result of the whole
// sequence: the states, which each invocation replaces by the next ones, the outputs, and what the gradient reads.
// CELL: 0 LSTM, 1 GRU, 2 RNN with tanh, 3 RNN with relu, 4 what is left after an LSTM's projection.
layout(local_size_x = 64) in;
layout(binding = 0) readonly buffer X { float x[]; };
layout(binding = 1) readonly buffer H { float h[]; };
layout(binding = 2) readonly buffer Old { float old[]; };
layout(binding = 3) writeonly buffer Fresh { float fresh[]; };
layout(push_constant) uniform Push {
    uint n, size, x_at, outputs_at, hidden_at, cell_at, before_at, saved_at;
    uint saves;  // whether a gradient will be computed
    uint keeps;  // whether the outputs are the next hidden state, which a projection would make
} p;
#if CELL == 0
const uint GATES = 4, SAVED = 6;
#elif CELL == 1
const uint GATES = 3, SAVED = 4;
#else
const uint GATES = 1, SAVED = 0;
#endif

void main() {
    const uint step = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
    for (uint i = gl_GlobalInvocationID.x; i < p.n; i += step) {
#if CELL == 4
        const float next = old[p.outputs_at + i];
#else
        const uint row = i / p.size;
        const uint gate = i + row * (GATES - 1) * p.size;
        const uint save = p.saved_at + i + row * (SAVED - 1) * p.size;
        const uint x_at = p.x_at + gate;
#if CELL == 0
        const float input_gate = sigmoidf(x[x_at] + h[gate]);
        const float forget_gate = sigmoidf(x[x_at + p.size] + h[gate + p.size]);
        const float candidate = tanhf(x[x_at + 2 * p.size] + h[gate + 2 * p.size]);
        const float output_gate = sigmoidf(x[x_at + 3 * p.size] + h[gate + 3 * p.size]);
        const float cell = old[p.cell_at + i];
        const float new_cell = forget_gate * cell + input_gate * candidate;
        const float tanh_cell = tanhf(new_cell);
        const float next = output_gate * tanh_cell;
        fresh[p.cell_at + i] = new_cell;
        if (p.saves != 0) {
            fresh[save] = input_gate;
            fresh[save + p.size] = forget_gate;
            fresh[save + 2 * p.size] = candidate;
            fresh[save + 3 * p.size] = output_gate;
            fresh[save + 4 * p.size] = cell;
            fresh[save + 5 * p.size] = tanh_cell;
        }
#elif CELL == 1
        const float h_new = h[gate + 2 * p.size];
        const float reset = sigmoidf(x[x_at] + h[gate]);
        const float update = sigmoidf(x[x_at + p.size] + h[gate + p.size]);
        const float candidate = tanhf(x[x_at + 2 * p.size] + reset * h_new);
        const float next = (1.0 - update) * candidate + update * old[p.hidden_at + i];
        if (p.saves != 0) {
            fresh[save] = reset;
            fresh[save + p.size] = update;
            fresh[save + 2 * p.size] = candidate;
            fresh[save + 3 * p.size] = h_new;
        }
#elif CELL == 2
        const float next = tanhf(x[x_at] + h[gate]);
#else
        const float sum = x[x_at] + h[gate];
        const float next = sum < 0.0 ? 0.0 : sum;  // nan stays nan
#endif
        fresh[p.outputs_at + i] = next;
#endif
        if (p.keeps != 0) {
            if (p.saves != 0) fresh[p.before_at + i] = old[p.hidden_at + i];
            fresh[p.hidden_at + i] = next;
        }
    }
}
