#version 450
#extension GL_GOOGLE_include_directive : require
#include "math/exponential.glsl"
// The gradient of lstm.comp: g holds those of the new hidden state and of the new cell, x the sums of the gates' shares.
// y is the gradient of x (rows, 4, size), and behind it that of the old cell (rows, size).
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
        const uint at = i / p.size * 4 * p.size + i % p.size;
        const float before = cell[p.cell_offset + i];
        const float enter = sigmoidf(x[p.x_offset + at]);
        const float forget = sigmoidf(x[p.x_offset + at + p.size]);
        const float value = tanhf(x[p.x_offset + at + 2 * p.size]);
        const float leave = sigmoidf(x[p.x_offset + at + 3 * p.size]);
        const float shown = tanhf(forget * before + enter * value);
        const float of_hidden = g[p.g_offset + i];
        const float of_cell = g[p.g_offset + p.n + i] + of_hidden * leave * (1.0 - shown * shown);
        y[at] = of_cell * value * (enter * (1.0 - enter));
        y[at + p.size] = of_cell * before * (forget * (1.0 - forget));
        y[at + 2 * p.size] = of_cell * enter * (1.0 - value * value);
        y[at + 3 * p.size] = of_hidden * shown * (leave * (1.0 - leave));
        y[4 * p.n + i] = of_cell * forget;
    }
}
