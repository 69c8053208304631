#version 450
#extension GL_GOOGLE_include_directive : require
// The gradient of one step of sequence.comp. s is the result of the whole sequence, g the gradient of the outputs. Old
// and Fresh are the same buffer: the gradients of the states, which each invocation replaces by those of the states
// before, and of the terms of the gates (rows, GATES, size).
// GRADIENT: that of dl4all/ops/rnn/cells.py. CELL: as there; 4 adds the gradients that meet at the output of a projection.
layout(local_size_x = 64) in;
layout(binding = 0) readonly buffer S { float s[]; };
layout(binding = 1) readonly buffer G { float g[]; };
layout(binding = 2) readonly buffer Old { float old[]; };
layout(binding = 3) writeonly buffer Fresh { float fresh[]; };
layout(push_constant) uniform Push {
    uint n, size, g_at, saved_at, before_at, gates_at, gates_h_at, hidden_at, cell_at;
    uint adds;  // whether the hidden state's gradient is to be added to that of the outputs
} p;
#if CELL == 0
const uint GATES = 4, SAVED = 6;
#elif CELL == 1
const uint GATES = 3, SAVED = 4;
#else
const uint GATES = 1, SAVED = 1;
#endif

void main() {
    const uint step = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
    for (uint i = gl_GlobalInvocationID.x; i < p.n; i += step) {
        float grad = g[p.g_at + i];
        if (p.adds != 0) grad += old[p.hidden_at + i];
        const uint row = i / p.size;
        const uint gate = p.gates_at + i + row * (GATES - 1) * p.size;
        const uint save = p.saved_at + i + row * (SAVED - 1) * p.size;
#if CELL == 0
        const float input_gate = s[save];
        const float forget_gate = s[save + p.size];
        const float candidate = s[save + 2 * p.size];
        const float output_gate = s[save + 3 * p.size];
        const float cell = s[save + 4 * p.size];
        const float tanh_cell = s[save + 5 * p.size];
        float grad_cell = old[p.cell_at + i];
        GRADIENT
        fresh[gate] = dx0;
        fresh[gate + p.size] = dx1;
        fresh[gate + 2 * p.size] = dx2;
        fresh[gate + 3 * p.size] = dx3;
        fresh[p.cell_at + i] = grad_cell;
#elif CELL == 1
        const float reset = s[save];
        const float update = s[save + p.size];
        const float candidate = s[save + 2 * p.size];
        const float h2 = s[save + 3 * p.size];
        const float hidden = s[p.before_at + i];
        GRADIENT
        const uint gate_h = gate - p.gates_at + p.gates_h_at;
        fresh[gate] = dx0;
        fresh[gate + p.size] = dx1;
        fresh[gate + 2 * p.size] = dx2;
        fresh[gate_h] = dx0;
        fresh[gate_h + p.size] = dx1;
        fresh[gate_h + 2 * p.size] = dh2;
        fresh[p.hidden_at + i] = grad;
#elif CELL < 4
        const float next = s[save];
        GRADIENT
        fresh[gate] = dx0;
#else
        fresh[gate] = grad;
#endif
    }
}
