#version 450
// GEMM: C[M,N] = A[M,K] B[K,N] + bias, row-major, batched over z, once for each of SLICES slices of the sums. The bias is
// one number for each row; with TRANSPOSE_B or MATRIX it may also be one for each column, or another matrix.
//
// Every invocation keeps a register tile of TM rows x TNV vec4 columns and walks all of K, from the first
// product to the last, so that every form and tile gives the same sums. There are three forms:
//
//  SHUFFLE    the workgroup is one subgroup of 8 whose lanes lie along M, eight rows apart. For llvmpipe,
//             where every buffer load inside a loop is done lane by lane, even one whose address is the
//             same in all lanes: the columns of B that all lanes need are loaded once, spread over the
//             lanes, and broadcast by subgroupShuffle with a constant lane, which is one instruction.
//  SHARED     WX invocations lie side by side along N and WY along M; the workgroup first copies the pieces of A and
//             B that it needs into shared memory (staged.glsl). For GPUs.
//  neither    the same layout, but each invocation loads its elements by itself, without a barrier. For GPUs whose
//             shared memory is no faster than the rest, and where there are too few rows or columns to share.
//
// Either operand may be stored transposed, as it is in gradients, and takes as many loads:
//
//  TRANSPOSE_A  A[m,k] lies at k * lda + m: four rows are read at a time, and a lane's rows are neighbours
//  TRANSPOSE_B  B[k,n] lies at n * ldb + k: four k of one column are read at a time
//
//  VEC_A      lda, a_offset and a_step are multiples of 4: A is read four elements at a time
//  VEC_B      ldb, panel, panel_step, b_offset and b_step are multiples of 4: B is read four elements at a time
//  VEC_C      N, ldc, c_offset and c_step are multiples of 4: C is written four columns at a time. -1 with TRANSPOSE_A,
//             TRANSPOSE_B or SHARED: tested at run time, which costs something where K is small.
//  WORDS64    vec4s are read as two 64-bit words: on llvmpipe each word costs a bounds check
#extension GL_EXT_control_flow_attributes : require
#extension GL_GOOGLE_include_directive : require
#if SHUFFLE
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#endif
layout(local_size_x_id = 2, local_size_y_id = 3) in;
layout(constant_id = 2) const uint WX = 8;
layout(constant_id = 3) const uint WY = 1;
layout(constant_id = 4) const int TM = 8;
layout(constant_id = 5) const int TNV = 1;
#if SHUFFLE
// k of B that are spread over the lanes at a time, as many as fill them; for wide tiles 2 was measured to be fastest.
const int KS = TNV > 2 ? 2 : 4;
#endif
layout(constant_id = 0) const uint MATRIX = 0;
layout(constant_id = 1) const uint SLICES = 1;
#include "operands.glsl"
#define FIRST_OPERAND 4
#include "epilogue.glsl"
#if SHARED
#include "staged.glsl"
#endif

#if TRANSPOSE_A
#define X(i, kk) x[(kk) * (TM / 4) + (i) / 4][(i) % 4]
#else
#define X(i, kk) x[i][kk]
#endif

void main() {
    const uint batches = gl_NumWorkGroups.z / SLICES;
    const uint slice = SLICES == 1 ? 0 : gl_WorkGroupID.z / batches, batch = gl_WorkGroupID.z - slice * batches;
    const uint a_start = p.a_offset + batch * p.a_step + slice * p.K * A_TERM;
    const uint b_start = p.b_offset + batch * p.b_step + slice * p.K * B_TERM;
    const uint K = slice + 1 == SLICES ? p.terms - slice * p.K : p.K;

    // ROW(i) and COLUMN(j): where the tile's row i and vec4 column j lie in C.
#if SHUFFLE
    const uint lane = gl_SubgroupInvocationID;
    const uint n = gl_WorkGroupID.x * (4 * TNV);
#if TRANSPOSE_A
    const uint m = gl_WorkGroupID.y * (8 * TM) + lane * TM;
#define ROW(i) (m + uint(i))
#else
    const uint m = gl_WorkGroupID.y * (8 * TM) + lane;
#define ROW(i) (m + uint(i) * 8)
#endif
#define COLUMN(j) (n + uint(j) * 4)
#else
    const uint m = gl_GlobalInvocationID.y * TM;
    const uint n = gl_WorkGroupID.x * (WX * 4 * TNV) + gl_LocalInvocationID.x * 4;
#define ROW(i) (m + uint(i))
#define COLUMN(j) (n + uint(j) * (WX * 4))
#endif

    vec4 sum[TM * TNV];
    UNROLL(t, TM * TNV) sum[t] = vec4(0.0);
#if SHARED
    const uint m_first = gl_WorkGroupID.y * ROWS, n_first = gl_WorkGroupID.x * COLUMNS;
    const uint first_terms = (K - 1) % DEPTH + 1;
    PlaceA a_place[A_SHARE];
    PlaceB b_place[B_SHARE];
    UNROLL(i, A_SHARE) {
        a_place[i] = place_a(share(i), a_start, m_first);
        stage_a(share(i), 0, first_a(a_place[i], share(i), int(first_terms) - DEPTH, K));
    }
    UNROLL(i, B_SHARE) {
        b_place[i] = place_b(share(i), b_start, n_first);
        stage_b(share(i), 0, first_b(b_place[i], share(i), int(first_terms) - DEPTH, K));
    }
    uint piece = 0;
    for (uint k = first_terms; k <= K; k += DEPTH) {
        barrier();
        // The next piece is loaded while this one is multiplied; the last one once more, as a branch would cost more.
        const int next = int(min(k, K - DEPTH));
        vec4 a_next[A_SHARE], b_next[B_SHARE];
        UNROLL(i, A_SHARE) a_next[i] = fetch_a(a_place[i], next);
        UNROLL(i, B_SHARE) b_next[i] = fetch_b(b_place[i], next);
        const uint a_index = piece * DEPTH * A_ROW + gl_LocalInvocationID.y * (TM / 4);
        const uint b_index = piece * DEPTH * B_ROW + gl_LocalInvocationID.x;
        UNROLL(kk, DEPTH) {
            vec4 x[TM / 4];
            UNROLL(q, TM / 4) x[q] = a_piece[a_index + kk * A_ROW + q];
            UNROLL(j, TNV) {
                const vec4 y = b_piece[b_index + kk * B_ROW + j * WX];
                UNROLL(i, TM) sum[i * TNV + j] += x[i / 4][i % 4] * y;
            }
        }
        if (PIECES == 1) barrier();
        else piece ^= 1;
        UNROLL(i, A_SHARE) stage_a(share(i), piece, a_next[i]);
        UNROLL(i, B_SHARE) stage_b(share(i), piece, b_next[i]);
    }
#else
#if TRANSPOSE_A
    Rows a_row[TM / 4];
    UNROLL(q, TM / 4) a_row[q] = rows(ROW(q * 4));
#else
    // Rows beyond M repeat the last one.
    uint a_row[TM];
    UNROLL(i, TM) a_row[i] = a_start + min(ROW(i), p.M - 1) * p.lda;
#endif
    Columns b_column[TNV];
    UNROLL(j, TNV) b_column[j] = columns(COLUMN(j));
    // Counted in vec4s before the loop, where a compiler does not do that: llvmpipe's does.
#if VEC_A && !TRANSPOSE_A && !SHUFFLE
    uint a_four[TM];
    UNROLL(i, TM) a_four[i] = a_row[i] / 4;
#define LOAD_A(i, k) four(a4[a_four[i] + (k) / 4])
#else
#define LOAD_A(i, k) load_a(a_row[i] + (k))
#endif
#if VEC_B && !TRANSPOSE_B && !SHUFFLE
    uint b_four[TNV];
    UNROLL(j, TNV) b_four[j] = (b_start + b_column[j]) / 4;
#define LOAD_B(j, k) four(b4[b_four[j] + (k) * (p.ldb / 4)])
#else
#define LOAD_B(j, k) load_b(b_start + (k) * p.ldb, b_column[j])
#endif
#if SHUFFLE && TRANSPOSE_B
    // Column t of the tile is loaded by lane t % 8 into held[t / 8].
    const int HELD = (4 * TNV + 7) / 8;
    uint held_column[HELD];
    UNROLL(h, HELD) held_column[h] = min(n + uint(h) * 8 + lane, p.N - 1) * p.ldb;
#elif SHUFFLE
    // The KS x TNV vec4s of B that are used at once are numbered t = kk * TNV + j and dealt out to the
    // lanes: t lies in held[t / 8] of lane t % 8.
    const int HELD = (KS * TNV + 7) / 8;
    Columns held_column[HELD];
    UNROLL(h, HELD) {
        const uint t = min(uint(h) * 8 + lane, uint(KS * TNV - 1));
        held_column[h] = columns(COLUMN(t % TNV)) + t / TNV * p.ldb;
    }
#endif

    // Four k in each iteration: llvmpipe masks the writes to everything that a loop carries, so the tile should be
    // written back rarely.
    uint k = 0;
    for (; k + 4 <= K; k += 4) {
        vec4 x[TM];
#if TRANSPOSE_A
        UNROLL(kk, 4) UNROLL(q, TM / 4) x[kk * (TM / 4) + q] = load_rows(a_start + (k + kk) * p.lda, a_row[q]);
#else
        UNROLL(i, TM) x[i] = LOAD_A(i, k);
#endif
#if SHUFFLE && TRANSPOSE_B
        vec4 held[HELD];
        UNROLL(h, HELD) held[h] = load_k(b_start + held_column[h] + k);
        UNROLL(t, 4 * TNV) {
            const vec4 y = subgroupShuffle(held[t / 8], uint(t % 8));
            UNROLL(i, TM) UNROLL(kk, 4) sum[i * TNV + t / 4][t % 4] += X(i, kk) * y[kk];
        }
#elif SHUFFLE
        UNROLL(s, 4 / KS) {
            vec4 held[HELD];
            UNROLL(h, HELD) held[h] = load_b(b_start + (k + s * KS) * p.ldb, held_column[h]);
            UNROLL(j, TNV) UNROLL(kk, KS) {
                const vec4 y = subgroupShuffle(held[(kk * TNV + j) / 8], uint((kk * TNV + j) % 8));
                UNROLL(i, TM) sum[i * TNV + j] += X(i, s * KS + kk) * y;
            }
        }
#elif TRANSPOSE_B
        UNROLL(j, TNV) UNROLL(e, 4) {
            const vec4 y = load_k(b_start + b_column[j][e] + k);
            UNROLL(i, TM) UNROLL(kk, 4) sum[i * TNV + j][e] += X(i, kk) * y[kk];
        }
#else
        UNROLL(kk, 4) UNROLL(j, TNV) {
            const vec4 y = LOAD_B(j, k + kk);
            UNROLL(i, TM) sum[i * TNV + j] += X(i, kk) * y;
        }
#endif
    }
    // The remainder of K, one at a time, so that neither A nor B needs padding.
    for (; k < K; ++k) {
#if TRANSPOSE_A
        vec4 x[TM / 4];
        UNROLL(q, TM / 4) x[q] = load_rows(a_start + k * p.lda, a_row[q]);
#define X1(i) X(i, 0)
#else
#define X1(i) a[a_row[i] + k]
#endif
        UNROLL(j, TNV) {
            const vec4 y = load_b(b_start + k * B_TERM, b_column[j]);
            UNROLL(i, TM) sum[i * TNV + j] += X1(i) * y;
        }
    }
#endif

    // The bias comes last: it may be a partial sum, which would round each of the terms that are added to it.
    if (p.has_bias != 0 && slice == 0) {
        UNROLL(i, TM) {
            const uint start = p.bias_offset + batch * p.bias_step + min(ROW(i), p.M - 1) * p.bias_row;
            if ((TRANSPOSE_B != 0 || MATRIX != 0) && p.bias_column != 0) {
                UNROLL(j, TNV) UNROLL(e, 4) {
                    sum[i * TNV + j][e] += bias[start + min(COLUMN(j) + e, p.N - 1) * p.bias_column];
                }
            } else {
                const float number = bias[start];
                UNROLL(j, TNV) sum[i * TNV + j] += number;
            }
        }
    }
    const uint c_start = p.c_offset + gl_WorkGroupID.z * p.c_step;
#if VEC_C < 0
    const bool vectors = ((p.N | p.ldc | p.c_offset | p.c_step) & 3u) == 0;
#else
    const bool vectors = VEC_C != 0;
#endif
    if (vectors) {
        UNROLL(i, TM) UNROLL(j, TNV) {
            const uint at = c_start + ROW(i) * p.ldc + COLUMN(j);
            if (ROW(i) < p.M && COLUMN(j) < p.N) c4[at / 4] = epilogue4(sum[i * TNV + j], at, ROW(i), COLUMN(j));
        }
    } else {
        UNROLL(i, TM) UNROLL(j, TNV) UNROLL(e, 4) {
            const uint column = COLUMN(j) + e;
            const uint at = c_start + ROW(i) * p.ldc + column;
            if (ROW(i) < p.M && column < p.N) c[at] = epilogue(sum[i * TNV + j][e], at, ROW(i), column);
        }
    }
}
