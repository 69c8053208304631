// Buffers, push constants and loads of gemm.comp, which explains the macros.
layout(push_constant) uniform Push {
    uint M, N, K, lda, ldb, ldc;
    uint a_step, b_step, c_step;        // from one matrix of the batch to the next
    uint a_offset, b_offset, c_offset;  // where the first starts
    uint panel, panel_step;             // B lies in panels of `panel` columns; without panels, all in one
    uint has_bias, bias_offset, bias_row, bias_column, bias_step;  // distances of rows, columns and matrices
    uint terms;                         // of the sums, where SLICES workgroups share them, K each but for the last
#ifdef EPILOGUE
    EPILOGUE_PUSH
#endif
} p;

layout(binding = 0) restrict readonly buffer A { float a[]; };
layout(binding = 1) restrict readonly buffer B { float b[]; };
// Any buffer without a bias; the bias may be C itself.
layout(binding = 2) readonly buffer Bias { float bias[]; };
layout(binding = 3) writeonly buffer C { float c[]; };
layout(binding = 3) writeonly buffer C4 { vec4 c4[]; };

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

// Four adjacent elements of A.
vec4 load_a(uint at) {
#if VEC_A
    return four(a4[at / 4]);
#else
    return vec4(a[at], a[at + 1], a[at + 2], a[at + 3]);
#endif
}

// The distances of successive terms.
#if TRANSPOSE_A
#define A_TERM p.lda
#else
#define A_TERM 1
#endif
#if TRANSPOSE_B
#define B_TERM 1
#else
#define B_TERM p.ldb
#endif

#if TRANSPOSE_A
// The positions of rows m .. m+3 in a column of A. A row beyond the matrix repeats one that exists.
#if VEC_A
#define Rows uint
uint rows(uint m) { return min(m, (p.M - 1) & ~3u); }
vec4 load_rows(uint column, uint at) { return load_a(column + at); }
#else
#define Rows uvec4
uvec4 rows(uint m) { return min(uvec4(m, m + 1, m + 2, m + 3), uvec4(p.M - 1)); }
vec4 load_rows(uint column, uvec4 at) {
    return vec4(a[column + at.x], a[column + at.y], a[column + at.z], a[column + at.w]);
}
#endif
#endif

// The positions of columns n .. n+3 in the first row of B. A column beyond the matrix repeats one that exists: its
// results are never stored.
#if TRANSPOSE_B
#define Columns uvec4
uvec4 columns(uint n) { return min(uvec4(n, n + 1, n + 2, n + 3), uvec4(p.N - 1)) * p.ldb; }
vec4 load_b(uint k, uvec4 at) { return vec4(b[k + at.x], b[k + at.y], b[k + at.z], b[k + at.w]); }
// Four k of one column.
vec4 load_k(uint at) {
#if VEC_B
    return four(b4[at / 4]);
#else
    return vec4(b[at], b[at + 1], b[at + 2], b[at + 3]);
#endif
}
#else
uint column_position(uint n) { return n / p.panel * p.panel_step + n % p.panel; }
#if VEC_B
#define Columns uint
uint columns(uint n) { return column_position(min(n, (p.N - 1) & ~3u)); }
vec4 load_b(uint row, uint at) { return four(b4[(row + at) / 4]); }
#else
#define Columns uvec4
uvec4 columns(uint n) {
    const uint last = p.N - 1;
    return uvec4(column_position(min(n, last)), column_position(min(n + 1, last)),
                 column_position(min(n + 2, last)), column_position(min(n + 3, last)));
}
vec4 load_b(uint row, uvec4 at) { return vec4(b[row + at.x], b[row + at.y], b[row + at.z], b[row + at.w]); }
#endif
#endif
