// Staging of A and B in shared memory, in pieces DEPTH deep along K: a workgroup reads each element of A and B once.
//
// The first piece takes the remainder of K and fills up with zeros in front of it; all others are full, so that their
// loads need no check: a check would be a branch, behind which some drivers wait for what was loaded. Where an
// invocation reads and what it writes is worked out once, before the loop.
//
// With PIECES = 2 there is room for two pieces, one of which is filled while the other one is multiplied: one barrier
// for each is enough. With PIECES = 1 there are two, but twice the depth takes the same memory.
//
// A row of shared memory holds one k, and an unused vec4 as padding: operands that lie along K are transposed on the
// way, and without the padding the invocations that do that would conflict in one bank.
layout(constant_id = 6) const int DEPTH = 16;
layout(constant_id = 7) const int PIECES = 1;
const uint ROWS = TM * WY;
const uint COLUMNS = 4 * TNV * WX;
const uint A_ROW = ROWS / 4 + 1;
const uint B_ROW = COLUMNS / 4 + 1;
const int A_SHARE = int(ROWS * DEPTH / (4 * WX * WY));  // vec4s of a piece that an invocation copies
const int B_SHARE = int(COLUMNS * DEPTH / (4 * WX * WY));
shared vec4 a_piece[PIECES * DEPTH * A_ROW];
shared vec4 b_piece[PIECES * DEPTH * B_ROW];

// The number within a piece of an invocation's vec4 i.
uint share(int i) { return gl_LocalInvocationIndex + uint(i) * (WX * WY); }

// PlaceA and place_a(): where vec4 t of A lies in a piece whose first row is m and whose first column is 0;
// fetch_a(): that vec4 of the piece whose first column is k, which must be full;
// first_a(): the same for a piece that may begin before column 0, with zeros there: nothing else would do, as memory
// may hold nan.
// With VEC_A, a place counts vec4s. k is below 0 before column 0, and a multiple of 4 where VEC_A reads along K.
#if TRANSPOSE_A
#define PlaceA Rows
#if VEC_A
PlaceA place_a(uint t, uint first, uint m) {
    return (first + t / (ROWS / 4) * p.lda + rows(m + t % (ROWS / 4) * 4)) / 4;
}
vec4 fetch_a(PlaceA place, int k) { return four(a4[place + uint(k) * (p.lda / 4)]); }
#else
PlaceA place_a(uint t, uint first, uint m) {
    return first + t / (ROWS / 4) * p.lda + rows(m + t % (ROWS / 4) * 4);
}
vec4 fetch_a(PlaceA place, int k) { return load_rows(uint(k) * p.lda, place); }
#endif
vec4 first_a(PlaceA place, uint t, int k, uint terms) {
    if (t / (ROWS / 4) + uint(k) >= terms) return vec4(0.0);
    return fetch_a(place, k);
}
#else
#define PlaceA uint
#if VEC_A
PlaceA place_a(uint t, uint first, uint m) {
    return (first + min(m + t / (DEPTH / 4), p.M - 1) * p.lda) / 4 + t % (DEPTH / 4);
}
vec4 fetch_a(PlaceA place, int k) { return four(a4[place + uint(k >> 2)]); }
vec4 first_a(PlaceA place, uint t, int k, uint terms) {
    if (t % (DEPTH / 4) * 4 + uint(k) >= terms) return vec4(0.0);
    return fetch_a(place, k);
}
#else
PlaceA place_a(uint t, uint first, uint m) {
    return first + min(m + t / (DEPTH / 4), p.M - 1) * p.lda + t % (DEPTH / 4) * 4;
}
vec4 fetch_a(PlaceA place, int k) { return load_a(place + uint(k)); }
vec4 first_a(PlaceA place, uint t, int k, uint terms) {
    vec4 value = vec4(0.0);
    UNROLL(i, 4) {
        if (t % (DEPTH / 4) * 4 + i + uint(k) < terms) value[i] = a[place + uint(k + i)];
    }
    return value;
}
#endif
#endif

void stage_a(uint t, uint piece, vec4 value) {
#if TRANSPOSE_A
    a_piece[piece * DEPTH * A_ROW + t / (ROWS / 4) * A_ROW + t % (ROWS / 4)] = value;
#else
    const uint row = t / (DEPTH / 4);
    const uint at = (piece * DEPTH + t % (DEPTH / 4) * 4) * A_ROW + row / 4;
    UNROLL(i, 4) a_piece[at + i * A_ROW][row % 4] = value[i];
#endif
}

// The same for B, with columns and rows exchanged.
#if TRANSPOSE_B
#define PlaceB uint
#if VEC_B
PlaceB place_b(uint t, uint first, uint n) {
    return (first + min(n + t / (DEPTH / 4), p.N - 1) * p.ldb) / 4 + t % (DEPTH / 4);
}
vec4 fetch_b(PlaceB place, int k) { return four(b4[place + uint(k >> 2)]); }
vec4 first_b(PlaceB place, uint t, int k, uint terms) {
    if (t % (DEPTH / 4) * 4 + uint(k) >= terms) return vec4(0.0);
    return fetch_b(place, k);
}
#else
PlaceB place_b(uint t, uint first, uint n) {
    return first + min(n + t / (DEPTH / 4), p.N - 1) * p.ldb + t % (DEPTH / 4) * 4;
}
vec4 fetch_b(PlaceB place, int k) { return load_k(place + uint(k)); }
vec4 first_b(PlaceB place, uint t, int k, uint terms) {
    vec4 value = vec4(0.0);
    UNROLL(i, 4) {
        if (t % (DEPTH / 4) * 4 + i + uint(k) < terms) value[i] = b[place + uint(k + i)];
    }
    return value;
}
#endif
#else
#define PlaceB Columns
#if VEC_B
PlaceB place_b(uint t, uint first, uint n) {
    return (first + t / (COLUMNS / 4) * p.ldb + columns(n + t % (COLUMNS / 4) * 4)) / 4;
}
vec4 fetch_b(PlaceB place, int k) { return four(b4[place + uint(k) * (p.ldb / 4)]); }
#else
PlaceB place_b(uint t, uint first, uint n) {
    return first + t / (COLUMNS / 4) * p.ldb + columns(n + t % (COLUMNS / 4) * 4);
}
vec4 fetch_b(PlaceB place, int k) { return load_b(uint(k) * p.ldb, place); }
#endif
vec4 first_b(PlaceB place, uint t, int k, uint terms) {
    if (t / (COLUMNS / 4) + uint(k) >= terms) return vec4(0.0);
    return fetch_b(place, k);
}
#endif

void stage_b(uint t, uint piece, vec4 value) {
#if TRANSPOSE_B
    const uint column = t / (DEPTH / 4);
    const uint at = (piece * DEPTH + t % (DEPTH / 4) * 4) * B_ROW + column / 4;
    UNROLL(i, 4) b_piece[at + i * B_ROW][column % 4] = value[i];
#else
    b_piece[piece * DEPTH * B_ROW + t / (COLUMNS / 4) * B_ROW + t % (COLUMNS / 4)] = value;
#endif
}
