#version 450
#extension GL_GOOGLE_include_directive : require
#include "math/exponential.glsl"
// The pointwise part of a GRU's step. x and h (rows, 3, size) are the terms of the gates from the input and from the
// hidden state, in the order reset, update, new; y is the new hidden state (rows, size). RULE: that of
// dl4all/ops/rnn/cells.py.
layout(local_size_x = 128) in;
layout(binding = 0) readonly buffer X { float x[]; };
layout(binding = 1) readonly buffer H { float h[]; };
layout(binding = 2) readonly buffer Hidden { float old[]; };
layout(binding = 3) writeonly buffer Y { float y[]; };
layout(push_constant) uniform Push {
    uint n, size, x_offset, h_offset, hidden_offset;
} p;

void main() {
    const uint step = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
    for (uint i = gl_GlobalInvocationID.x; i < p.n; i += step) {
        const uint gate = i / p.size * 3 * p.size + i % p.size;
        const uint x_at = p.x_offset + gate;
        const uint h_at = p.h_offset + gate;
        const float x0 = x[x_at], x1 = x[x_at + p.size], x2 = x[x_at + 2 * p.size];
        const float h0 = h[h_at], h1 = h[h_at + p.size], h2 = h[h_at + 2 * p.size];
        const float hidden = old[p.hidden_offset + i];
        RULE
        y[i] = next;
    }
}
