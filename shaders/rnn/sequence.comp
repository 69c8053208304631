#version 450
#extension GL_GOOGLE_include_directive : require
#include "math/exponential.glsl"
// One time step of a recurrent layer, all but the product. x (rows, GATES, size) are the terms of the gates from the
// input, h those from the hidden state, in PyTorch's order. Old and Fresh are the same buffer, the result of the whole
// sequence: the states, which each invocation replaces by the next ones, the outputs, and what the gradient reads.
// CELL: 0 LSTM, 1 GRU, 2 RNN with tanh, 3 RNN with relu, 4 what is left after an LSTM's projection.
// RULE: that of dl4all/ops/rnn/cells.py.
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
        const float x0 = x[x_at], h0 = h[gate];
#if CELL < 2
        const float x1 = x[x_at + p.size], h1 = h[gate + p.size];
        const float x2 = x[x_at + 2 * p.size], h2 = h[gate + 2 * p.size];
#endif
#if CELL == 0
        const float x3 = x[x_at + 3 * p.size], h3 = h[gate + 3 * p.size];
        const float cell = old[p.cell_at + i];
        RULE
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
        const float hidden = old[p.hidden_at + i];
        RULE
        if (p.saves != 0) {
            fresh[save] = reset;
            fresh[save + p.size] = update;
            fresh[save + 2 * p.size] = candidate;
            fresh[save + 3 * p.size] = h2;
        }
#else
        RULE
#endif
        fresh[p.outputs_at + i] = next;
#endif
        if (p.keeps != 0) {
            if (p.saves != 0) fresh[p.before_at + i] = old[p.hidden_at + i];
            fresh[p.hidden_at + i] = next;
        }
    }
}
