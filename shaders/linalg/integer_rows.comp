#version 450
// c[i, j] = sum over k of a[i, k] * b[j, k], of integers of 8 bits in words of four; a's have a sign if SIGNED. The
// invocations of a workgroup lie along the sum, and add up ROWS x FEATURES results in shared memory: for few rows, and
// for processors, which read neighbours at once and have no shared memory of their own.
#extension GL_GOOGLE_include_directive : require
#include "integers.glsl"
layout(local_size_x = SIZE) in;
layout(binding = 0) readonly buffer A { uvec4 a[]; };
layout(binding = 1) readonly buffer B { uvec4 b[]; };
layout(binding = 2) writeonly buffer C { int c[]; };
layout(push_constant) uniform Push { uint m, n, words, a_offset, b_offset; } p;
shared int sums[SIZE][ROWS * FEATURES];

void main() {
    const uint me = gl_LocalInvocationID.x, length = p.words / 4;
    const uint row = gl_WorkGroupID.y * ROWS, column = gl_WorkGroupID.x * FEATURES;
    uint a_at[ROWS], b_at[FEATURES];
    int sum[ROWS][FEATURES];
    for (uint i = 0; i < ROWS; ++i) {
        a_at[i] = p.a_offset / 4 + min(row + i, p.m - 1) * length;
        for (uint j = 0; j < FEATURES; ++j) sum[i][j] = 0;
    }
    for (uint j = 0; j < FEATURES; ++j) b_at[j] = p.b_offset / 4 + min(column + j, p.n - 1) * length;
    for (uint k = me; k < length; k += SIZE) {
        uvec4 words[ROWS];
        for (uint i = 0; i < ROWS; ++i) words[i] = a[a_at[i] + k];
        for (uint j = 0; j < FEATURES; ++j) {
            const uvec4 others = b[b_at[j] + k];
            for (uint part = 0; part < 4; ++part) {
                const FOUR value = with_sign(others[part]);
                for (uint i = 0; i < ROWS; ++i) sum[i][j] += dot4(of_a(words[i][part]), value);
            }
        }
    }
    for (uint i = 0; i < ROWS; ++i) {
        for (uint j = 0; j < FEATURES; ++j) sums[me][i * FEATURES + j] = sum[i][j];
    }
    barrier();
    for (uint at = me; at < ROWS * FEATURES; at += SIZE) {
        int total = 0;
        for (uint i = 0; i < SIZE; ++i) total += sums[i][at];
        const uint i = row + at / FEATURES, j = column + at % FEATURES;
        if (i < p.m && j < p.n) c[i * p.n + j] = total;
    }
}
