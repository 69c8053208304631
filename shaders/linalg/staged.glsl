// Staging of A and B in shared memory, in pieces DEPTH deep along K: a workgroup reads each element of A and B once.
// There is room for two pieces (double buffering), so that one barrier for each is enough.
//
// A row of shared memory holds one k, and an unused vec4 as padding: operands that lie along K are transposed on the
// way, and without the padding the invocations that do that would conflict in one bank.
layout(constant_id = 5) const int DEPTH = 8;
const uint ROWS = TM * WY;
const uint COLUMNS = 4 * TNV * WX;
const uint A_ROW = ROWS / 4 + 1;
const uint B_ROW = COLUMNS / 4 + 1;
const int A_SHARE = int(ROWS * DEPTH / (4 * WX * WY));  // vec4s of a piece that an invocation copies
const int B_SHARE = int(COLUMNS * DEPTH / (4 * WX * WY));
shared vec4 a_piece[2 * DEPTH * A_ROW];
shared vec4 b_piece[2 * DEPTH * B_ROW];

// The number within a piece of an invocation's vec4 i.
uint share(int i) { return gl_LocalInvocationIndex + uint(i) * (WX * WY); }

// Four k of A, 0 beyond the last one: the memory there may hold nan.
vec4 load_a_or_zero(uint at, uint k) {
    if (k + 4 <= p.K) return load_a(at);
    vec4 value = vec4(0.0);
    UNROLL(i, 4) {
        if (k + i < p.K) value[i] = a[at + i];
    }
    return value;
}

// Vec4 t of the piece of A whose first row is m and whose first column is k.
vec4 fetch_a(uint t, uint first, uint m, uint k) {
#if TRANSPOSE_A
    k += t / (ROWS / 4);
    return k < p.K ? load_rows(first + k * p.lda, rows(m + t % (ROWS / 4) * 4)) : vec4(0.0);
#else
    k += t % (DEPTH / 4) * 4;
    return load_a_or_zero(first + min(m + t / (DEPTH / 4), p.M - 1) * p.lda + k, k);
#endif
}

void stage_a(uint t, uint piece, vec4 value) {
#if TRANSPOSE_A
    a_piece[piece * DEPTH * A_ROW + t / (ROWS / 4) * A_ROW + t % (ROWS / 4)] = value;
#else
    const uint row = t / (DEPTH / 4);
    const uint at = (piece * DEPTH + t % (DEPTH / 4) * 4) * A_ROW + row / 4;
    UNROLL(i, 4) a_piece[at + i * A_ROW][row % 4] = value[i];
#endif
}

#if TRANSPOSE_B
vec4 load_b_or_zero(uint at, uint k) {
    if (k + 4 <= p.K) return load_k(at);
    vec4 value = vec4(0.0);
    UNROLL(i, 4) {
        if (k + i < p.K) value[i] = b[at + i];
    }
    return value;
}
#endif

// Vec4 t of the piece of B whose first column is n and whose first row is k.
vec4 fetch_b(uint t, uint first, uint n, uint k) {
#if TRANSPOSE_B
    k += t % (DEPTH / 4) * 4;
    return load_b_or_zero(first + min(n + t / (DEPTH / 4), p.N - 1) * p.ldb + k, k);
#else
    k += t / (COLUMNS / 4);
    return k < p.K ? load_b(first + k * p.ldb, columns(n + t % (COLUMNS / 4) * 4)) : vec4(0.0);
#endif
}

void stage_b(uint t, uint piece, vec4 value) {
#if TRANSPOSE_B
    const uint column = t / (DEPTH / 4);
    const uint at = (piece * DEPTH + t % (DEPTH / 4) * 4) * B_ROW + column / 4;
    UNROLL(i, 4) b_piece[at + i * B_ROW][column % 4] = value[i];
#else
    b_piece[piece * DEPTH * B_ROW + t / (COLUMNS / 4) * B_ROW + t % (COLUMNS / 4)] = value;
#endif
}
