#version 450
// GEMM with cooperative matrices (VK_KHR_cooperative_matrix): C[M,N] = A[M,K] B[K,N] + bias, batched over z. Operands
// are float32 in memory, are rounded to ELEMENT on their way into shared memory, and their products are added in
// float32. It needs a compiler that knows the extension; where there is none, it is not offered.
//
// A workgroup computes BLOCKS_M x BLOCKS_N blocks, each of them by a subgroup that holds ROWS x COLUMNS fragments of
// FM x FN sums. Fragments have the sizes that the hardware multiplies in one instruction: 16x16x16 on AMD and NVIDIA,
// 8x16x16 or 8x8x16 on Intel, 8x8x8 on llvmpipe. Drivers may run it with smaller or larger subgroups than they
// report: with fewer subgroups than blocks, each computes several, one after the other.
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#extension GL_EXT_control_flow_attributes : require

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint FM = 16;
layout(constant_id = 2) const uint FN = 16;
layout(constant_id = 3) const uint FK = 16;
layout(constant_id = 4) const uint ROWS = 2;
layout(constant_id = 5) const uint COLUMNS = 2;
layout(constant_id = 6) const uint DEPTH = 2;  // fragments along K between two barriers
layout(constant_id = 7) const uint BLOCKS_M = 2;
layout(constant_id = 8) const uint BLOCKS_N = 2;
layout(constant_id = 9) const uint TURN_A = 0;  // the rows of A are next to each other in memory, not its columns
layout(constant_id = 10) const uint TURN_B = 0;

layout(binding = 0) readonly buffer A { float a[]; };
layout(binding = 1) readonly buffer B { float b[]; };
layout(binding = 2) readonly buffer Bias { float bias[]; };
layout(binding = 3) writeonly buffer C { float c[]; };
layout(push_constant) uniform Push {
    uint m, n, k;
    uint lda, ldb, ldc;
    uint a_step, b_step, c_step;
    uint a_offset, b_offset, c_offset;
    uint has_bias, bias_offset, bias_row, bias_column, bias_step;
} p;

const uint TILE_M = BLOCKS_M * ROWS * FM;
const uint TILE_N = BLOCKS_N * COLUMNS * FN;
const uint TILE_K = DEPTH * FK;
const uint PITCH_A = TILE_K + 8;  // rows that begin in different banks, on multiples of 16 bytes
const uint PITCH_B = TILE_N + 8;
const uint BLOCKS = BLOCKS_M * BLOCKS_N;
const uint LANES = gl_WorkGroupSize.x;

shared ELEMENT a_piece[TILE_M * PITCH_A];
shared ELEMENT b_piece[TILE_K * PITCH_B];
shared float results[BLOCKS * FM * FN];  // a fragment of each block on its way to C

// Neighbouring lanes read what is next to each other in memory.
void stage(const uint a_start, const uint b_start, const uint top, const uint left, const uint front) {
    for (uint i = gl_LocalInvocationIndex; i < TILE_M * TILE_K; i += LANES) {
        const uint r = TURN_A == 1 ? i % TILE_M : i / TILE_K;
        const uint kk = TURN_A == 1 ? i / TILE_M : i % TILE_K;
        const uint row = top + r, at = front + kk;
        float x = 0.0;
        if (row < p.m && at < p.k) x = a[a_start + (TURN_A == 1 ? at * p.lda + row : row * p.lda + at)];
        a_piece[r * PITCH_A + kk] = ELEMENT(x);
    }
    for (uint i = gl_LocalInvocationIndex; i < TILE_K * TILE_N; i += LANES) {
        const uint kk = TURN_B == 1 ? i % TILE_K : i / TILE_N;
        const uint s = TURN_B == 1 ? i / TILE_K : i % TILE_N;
        const uint column = left + s, at = front + kk;
        float y = 0.0;
        if (column < p.n && at < p.k) y = b[b_start + (TURN_B == 1 ? column * p.ldb + at : at * p.ldb + column)];
        b_piece[kk * PITCH_B + s] = ELEMENT(y);
    }
}

void main() {
    const uint batch = gl_WorkGroupID.z;
    const uint top = gl_WorkGroupID.y * TILE_M, left = gl_WorkGroupID.x * TILE_N;
    const uint a_start = p.a_offset + batch * p.a_step, b_start = p.b_offset + batch * p.b_step;
    for (uint first = 0; first < BLOCKS; first += gl_NumSubgroups) {
        const uint block = first + gl_SubgroupID;
        const bool busy = block < BLOCKS;  // the same in all lanes of a subgroup
        const uint block_row = block / BLOCKS_N * ROWS * FM, block_column = block % BLOCKS_N * COLUMNS * FN;
        coopmat<float, gl_ScopeSubgroup, FM, FN, gl_MatrixUseAccumulator> sums[ROWS * COLUMNS];
        [[unroll]] for (uint i = 0; i < ROWS * COLUMNS; ++i)
            sums[i] = coopmat<float, gl_ScopeSubgroup, FM, FN, gl_MatrixUseAccumulator>(0.0);

        for (uint front = 0; front < p.k; front += TILE_K) {
            barrier();  // the last piece was read
            stage(a_start, b_start, top, left, front);
            barrier();
            if (!busy) continue;
            [[unroll]] for (uint kk = 0; kk < TILE_K; kk += FK) {
                coopmat<ELEMENT, gl_ScopeSubgroup, FM, FK, gl_MatrixUseA> x[ROWS];
                [[unroll]] for (uint i = 0; i < ROWS; ++i)
                    coopMatLoad(x[i], a_piece, (block_row + i * FM) * PITCH_A + kk, PITCH_A,
                                gl_CooperativeMatrixLayoutRowMajor);
                [[unroll]] for (uint j = 0; j < COLUMNS; ++j) {
                    coopmat<ELEMENT, gl_ScopeSubgroup, FK, FN, gl_MatrixUseB> y;
                    coopMatLoad(y, b_piece, kk * PITCH_B + block_column + j * FN, PITCH_B,
                                gl_CooperativeMatrixLayoutRowMajor);
                    [[unroll]] for (uint i = 0; i < ROWS; ++i)
                        sums[i * COLUMNS + j] = coopMatMulAdd(x[i], y, sums[i * COLUMNS + j]);
                }
            }
        }

        const uint bias_start = p.bias_offset + batch * p.bias_step, c_start = p.c_offset + batch * p.c_step;
        [[unroll]] for (uint i = 0; i < ROWS * COLUMNS; ++i) {
            barrier();  // the last fragments were written
            if (busy)
                coopMatStore(sums[i], results, gl_SubgroupID * FM * FN, FN, gl_CooperativeMatrixLayoutRowMajor);
            barrier();
            if (!busy) continue;
            for (uint e = gl_SubgroupInvocationID; e < FM * FN; e += gl_SubgroupSize) {
                const uint row = top + block_row + i / COLUMNS * FM + e / FN;
                const uint column = left + block_column + i % COLUMNS * FN + e % FN;
                if (row >= p.m || column >= p.n) continue;
                float sum = results[gl_SubgroupID * FM * FN + e];
                if (p.has_bias == 1) sum += bias[bias_start + row * p.bias_row + column * p.bias_column];
                c[c_start + row * p.ldc + column] = sum;
            }
        }
    }
}
