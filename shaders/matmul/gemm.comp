#version 450
// C[M,N] = A[M,K] B[K,N] + bias[M], row-major, batched over z.
//
// Every invocation keeps a register tile of TM rows x TNV vec4 columns and walks all of K; there is no
// shared memory and no barrier. Two forms of it:
//
//  SHUFFLE=0  invocations lie side by side along N, WX of them, and WY along M. For GPUs, where a load
//             that is the same in all lanes costs one.
//  SHUFFLE=1  the workgroup is one subgroup of 8 whose lanes lie along M, eight rows apart. For llvmpipe,
//             where every buffer load inside a loop is done lane by lane, even one whose address is the
//             same in all lanes: the columns of B that all lanes need are loaded once, spread over the
//             lanes, and handed round by subgroupShuffle with a constant lane, which is one instruction.
//
//  VEC_A      lda, a_offset, a_step are multiples of 4: A is read four k at a time
//  VEC_B      ldb, panel, panel_step, b_offset, b_step are: B is read four columns at a time
//  VEC_C      N, ldc, c_offset, c_step are: C is written four columns at a time
//  WORDS64    vec4s are read as two 64-bit words: on llvmpipe each word costs a bounds check
#extension GL_EXT_control_flow_attributes : require
#if SHUFFLE
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#define KS 2  // k of B that are spread over the lanes at a time; measured
layout(local_size_x = 8) in;
#else
layout(local_size_x = WX, local_size_y = WY) in;
#endif

layout(push_constant) uniform Push {
    uint M, N, K, lda, ldb, ldc;
    uint a_step, b_step, c_step;        // from one matrix of the batch to the next
    uint a_offset, b_offset, c_offset;  // where the first starts
    uint panel, panel_step;             // B lies in panels of `panel` columns; a plain B in one
    uint has_bias, bias_offset;
} p;

layout(binding = 0) restrict readonly buffer A { float a[]; };
layout(binding = 1) restrict readonly buffer B { float b[]; };
layout(binding = 2) restrict readonly buffer Bias { float bias[]; };  // anything if there is none
layout(binding = 3) restrict writeonly buffer C { float c[]; };
layout(binding = 3) restrict writeonly buffer C4 { vec4 c4[]; };

#if WORDS64
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require
layout(binding = 0) restrict readonly buffer A4 { u64vec2 a4[]; };
layout(binding = 1) restrict readonly buffer B4 { u64vec2 b4[]; };
vec4 four(u64vec2 u) { return vec4(uintBitsToFloat(unpack32(u.x)), uintBitsToFloat(unpack32(u.y))); }
#else
layout(binding = 0) restrict readonly buffer A4 { vec4 a4[]; };
layout(binding = 1) restrict readonly buffer B4 { vec4 b4[]; };
#define four(v) (v)
#endif

#define UNROLL(i, n) [[unroll]] for (int i = 0; i < (n); ++i)

// Four consecutive elements of a row of A.
vec4 load_a(uint at) {
#if VEC_A
    return four(a4[at / 4]);
#else
    return vec4(a[at], a[at + 1], a[at + 2], a[at + 3]);
#endif
}

// Where columns n .. n+3 of B's first row lie. A column beyond the matrix repeats one that exists: its
// results are never stored.
uint place(uint n) { return n / p.panel * p.panel_step + n % p.panel; }
#if VEC_B
#define Columns uint
uint columns(uint n) { return place(min(n, (p.N - 1) & ~3u)); }
vec4 load_b(uint row, uint at) { return four(b4[(row + at) / 4]); }
#else
#define Columns uvec4
uvec4 columns(uint n) {
    const uint last = p.N - 1;
    return uvec4(place(min(n, last)), place(min(n + 1, last)), place(min(n + 2, last)), place(min(n + 3, last)));
}
vec4 load_b(uint row, uvec4 at) { return vec4(b[row + at.x], b[row + at.y], b[row + at.z], b[row + at.w]); }
#endif

void main() {
    const uint batch = gl_WorkGroupID.z;
    const uint a_start = p.a_offset + batch * p.a_step;
    const uint b_start = p.b_offset + batch * p.b_step;

    // ROW(i) and COLUMN(j): where the tile's row i and vec4 column j lie in C.
#if SHUFFLE
    const uint lane = gl_SubgroupInvocationID;
    const uint m = gl_WorkGroupID.y * (8 * TM) + lane;
    const uint n = gl_WorkGroupID.x * (4 * TNV);
#define ROW(i) (m + uint(i) * 8)
#define COLUMN(j) (n + uint(j) * 4)
#else
    const uint m = gl_GlobalInvocationID.y * TM;
    const uint n = gl_WorkGroupID.x * (WX * 4 * TNV) + gl_LocalInvocationID.x * 4;
#define ROW(i) (m + uint(i))
#define COLUMN(j) (n + uint(j) * (WX * 4))
#endif

    // Rows beyond M repeat the last one.
    uint a_row[TM];
    vec4 sum[TM][TNV];
    UNROLL(i, TM) {
        const uint row = min(ROW(i), p.M - 1);
        a_row[i] = a_start + row * p.lda;
        const float start = p.has_bias != 0 ? bias[p.bias_offset + row] : 0.0;
        UNROLL(j, TNV) sum[i][j] = vec4(start);
    }
    Columns b_column[TNV];
    UNROLL(j, TNV) b_column[j] = columns(COLUMN(j));
#if SHUFFLE
    // The KS x TNV vec4s of B that are used at once are numbered t = kk * TNV + j and dealt out to the
    // lanes: t lies in held[t / 8] of lane t % 8.
    const int HELD = (KS * TNV + 7) / 8;
    Columns held_column[HELD];
    UNROLL(h, HELD) {
        const uint t = min(uint(h) * 8 + lane, uint(KS * TNV - 1));
        held_column[h] = columns(COLUMN(t % TNV)) + t / TNV * p.ldb;
    }
#endif

    // Four k in each pass: llvmpipe guards whatever is carried round a loop with the execution mask, so
    // the tile should be written back rarely.
    uint k = 0;
    for (; k + 4 <= p.K; k += 4) {
        vec4 x[TM];
        UNROLL(i, TM) x[i] = load_a(a_row[i] + k);
#if SHUFFLE
        UNROLL(s, 4 / KS) {
            vec4 held[HELD];
            UNROLL(h, HELD) held[h] = load_b(b_start + (k + s * KS) * p.ldb, held_column[h]);
            UNROLL(j, TNV) UNROLL(kk, KS) {
                const vec4 y = subgroupShuffle(held[(kk * TNV + j) / 8], uint((kk * TNV + j) % 8));
                UNROLL(i, TM) sum[i][j] += x[i][s * KS + kk] * y;
            }
        }
#else
        UNROLL(kk, 4) UNROLL(j, TNV) {
            const vec4 y = load_b(b_start + (k + kk) * p.ldb, b_column[j]);
            UNROLL(i, TM) sum[i][j] += x[i][kk] * y;
        }
#endif
    }
    // What is left of K, one at a time, so that neither A nor B needs padding.
    for (; k < p.K; ++k) {
        UNROLL(j, TNV) {
            const vec4 y = load_b(b_start + k * p.ldb, b_column[j]);
            UNROLL(i, TM) sum[i][j] += a[a_row[i] + k] * y;
        }
    }

    UNROLL(i, TM) UNROLL(j, TNV) {
        const uint column = COLUMN(j);
        const uint at = p.c_offset + batch * p.c_step + ROW(i) * p.ldc + column;
#if VEC_C
        if (ROW(i) < p.M && column < p.N) c4[at / 4] = sum[i][j];
#else
        UNROLL(e, 4) if (ROW(i) < p.M && column + e < p.N) c[at + e] = sum[i][j][e];
#endif
    }
}
