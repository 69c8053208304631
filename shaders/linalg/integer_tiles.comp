#version 450
// c[i, j] = sum over k of a[i, k] * b[j, k], of integers of 8 bits in words of four; a's have a sign if SIGNED. A
// workgroup computes a tile through shared memory, each invocation 4 x 4 of it, 8 rows and columns apart: for GPUs.
#extension GL_GOOGLE_include_directive : require
#include "integers.glsl"
const uint TILE = 32, DEPTH = 8, STEP = 8;
layout(local_size_x = 8, local_size_y = 8) in;
layout(binding = 0) readonly buffer A { uint a[]; };
layout(binding = 1) readonly buffer B { uint b[]; };
layout(binding = 2) writeonly buffer C { int c[]; };
layout(push_constant) uniform Push { uint m, n, words, a_offset, b_offset; } p;
shared uint left[DEPTH][TILE], right[DEPTH][TILE];

void main() {
    const uint x = gl_LocalInvocationID.x, y = gl_LocalInvocationID.y;
    const uint row = gl_WorkGroupID.y * TILE, column = gl_WorkGroupID.x * TILE;
    int sum[4][4];
    for (uint i = 0; i < 4; ++i) {
        for (uint j = 0; j < 4; ++j) sum[i][j] = 0;
    }
    for (uint first = 0; first < p.words; first += DEPTH) {
        for (uint i = y; i < TILE; i += STEP) {  // x is the word of a row
            const uint word = min(first + x, p.words - 1);
            const bool inside = first + x < p.words;
            left[x][i] = inside ? a[p.a_offset + min(row + i, p.m - 1) * p.words + word] : 0;
            right[x][i] = inside ? b[p.b_offset + min(column + i, p.n - 1) * p.words + word] : 0;
        }
        barrier();
        for (uint k = 0; k < DEPTH; ++k) {
            FOUR factors[4];
            for (uint i = 0; i < 4; ++i) factors[i] = of_a(left[k][y + i * STEP]);
            for (uint j = 0; j < 4; ++j) {
                const FOUR value = with_sign(right[k][x + j * STEP]);
                for (uint i = 0; i < 4; ++i) sum[i][j] += dot4(factors[i], value);
            }
        }
        barrier();
    }
    for (uint i = 0; i < 4; ++i) {
        for (uint j = 0; j < 4; ++j) {
            const uint r = row + y + i * STEP, f = column + x + j * STEP;
            if (r < p.m && f < p.n) c[r * p.n + f] = sum[i][j];
        }
    }
}
