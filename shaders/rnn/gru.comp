#version 450
#extension GL_GOOGLE_include_directive : require
#include "math/exponential.glsl"
// The pointwise part of a GRU's step. X and H (rows, 3, size) hold the gates' two shares before their functions, in the
// order reset, update, new; y is the new hidden state (rows, size).
layout(local_size_x = 128) in;
layout(binding = 0) readonly buffer X { float x[]; };
layout(binding = 1) readonly buffer H { float h[]; };
layout(binding = 2) readonly buffer Hidden { float hidden[]; };
layout(binding = 3) writeonly buffer Y { float y[]; };
layout(push_constant) uniform Push {
    uint n, size, x_offset, h_offset, hidden_offset;
} p;

void main() {
    const uint step = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
    for (uint i = gl_GlobalInvocationID.x; i < p.n; i += step) {
        const uint at = i / p.size * 3 * p.size + i % p.size;
        const uint ax = p.x_offset + at;
        const uint ah = p.h_offset + at;
        const float reset = sigmoidf(x[ax] + h[ah]);
        const float update = sigmoidf(x[ax + p.size] + h[ah + p.size]);
        const float fresh = tanhf(x[ax + 2 * p.size] + reset * h[ah + 2 * p.size]);
        y[i] = (1.0 - update) * fresh + update * hidden[p.hidden_offset + i];
    }
}
