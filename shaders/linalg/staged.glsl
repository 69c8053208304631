// Pieces of A and B, DEPTH deep along K, on their way through shared memory: each element is read from A and B
// once for the workgroup. There is room for two pieces, so that one barrier for each is enough.
//
// A row of shared memory holds one k, and a vec4 that is not used: operands that lie along K are turned on the
// way, and without it the invocations that do that would meet in one bank.
layout(constant_id = 5) const int DEPTH = 8;
const uint ROWS = TM * WY;
const uint COLUMNS = 4 * TNV * WX;
const uint A_ROW = ROWS / 4 + 1;
const uint B_ROW = COLUMNS / 4 + 1;
const int A_SHARE = int(ROWS * DEPTH / (4 * WX * WY));  // vec4s that an invocation brings
const int B_SHARE = int(COLUMNS * DEPTH / (4 * WX * WY));
shared vec4 a_piece[2 * DEPTH * A_ROW];
shared vec4 b_piece[2 * DEPTH * B_ROW];

// The number of an invocation's share i of a piece.
uint part(int i) { return gl_LocalInvocationIndex + uint(i) * (WX * WY); }

// Four k of A, or 0 beyond the last: what lies there may be no number.
vec4 few_a(uint at, uint k) {
    if (k + 4 <= p.K) return load_a(at);
    vec4 found = vec4(0.0);
    UNROLL(i, 4) {
        if (k + i < p.K) found[i] = a[at + i];
    }
    return found;
}

// Part t of the piece of A whose first row is m and whose first column is k.
vec4 bring_a(uint t, uint first, uint m, uint k) {
#if TURN_A
    k += t / (ROWS / 4);
    return k < p.K ? load_rows(first + k * p.lda, rows(m + t % (ROWS / 4) * 4)) : vec4(0.0);
#else
    k += t % (DEPTH / 4) * 4;
    return few_a(first + min(m + t / (DEPTH / 4), p.M - 1) * p.lda + k, k);
#endif
}

void keep_a(uint t, uint piece, vec4 found) {
#if TURN_A
    a_piece[piece * DEPTH * A_ROW + t / (ROWS / 4) * A_ROW + t % (ROWS / 4)] = found;
#else
    const uint row = t / (DEPTH / 4);
    const uint at = (piece * DEPTH + t % (DEPTH / 4) * 4) * A_ROW + row / 4;
    UNROLL(i, 4) a_piece[at + i * A_ROW][row % 4] = found[i];
#endif
}

#if TURN_B
vec4 few_b(uint at, uint k) {
    if (k + 4 <= p.K) return load_k(at);
    vec4 found = vec4(0.0);
    UNROLL(i, 4) {
        if (k + i < p.K) found[i] = b[at + i];
    }
    return found;
}
#endif

// Part t of the piece of B whose first column is n and whose first row is k.
vec4 bring_b(uint t, uint first, uint n, uint k) {
#if TURN_B
    k += t % (DEPTH / 4) * 4;
    return few_b(first + min(n + t / (DEPTH / 4), p.N - 1) * p.ldb + k, k);
#else
    k += t / (COLUMNS / 4);
    return k < p.K ? load_b(first + k * p.ldb, columns(n + t % (COLUMNS / 4) * 4)) : vec4(0.0);
#endif
}

void keep_b(uint t, uint piece, vec4 found) {
#if TURN_B
    const uint column = t / (DEPTH / 4);
    const uint at = (piece * DEPTH + t % (DEPTH / 4) * 4) * B_ROW + column / 4;
    UNROLL(i, 4) b_piece[at + i * B_ROW][column % 4] = found[i];
#else
    b_piece[piece * DEPTH * B_ROW + t / (COLUMNS / 4) * B_ROW + t % (COLUMNS / 4)] = found;
#endif
}
