// The tiling of flash.comp and flash_backward.comp. A workgroup takes OWN rows of one side, queries or keys, and goes
// through the rows of the other side, OTHER of them at a time: of the scores, only OTHER * OWN exist at a time.
//
// Invocation `me` computes the scores of its four own rows, 4 * (me % OWN_FOURS) and those behind it, with 4 * PARTS other
// ones, and then, of the same own rows, the columns 4 * (me / OWN_FOURS + PART_FOURS * d), four of each, for d < DEPTH.
// Other rows come in PARTS parts of PART rows, as a part's factors fit into shared memory. Operands are staged there in
// pieces; the next piece is loaded while the one before it is multiplied, without branches, so that nothing waits.
//
// To be declared before: VALUE, OWN_DATA, OTHER_DATA and SOURCE_DATA, the buffers that the products read. FOURS: these
// are of vec4s, and all rows start at one.
#include "logsumexp.glsl"
layout(constant_id = 0) const uint DEPTH = 4;
layout(constant_id = 1) const uint PARTS = 2;
const uint MAX_DEPTH = 4;
const uint MAX_PARTS = 2;
const uint SIZE = 128;
const uint OWN = 64;
const uint PART = 32;
const uint OTHER = PART * PARTS;
const uint PIECE = 8;  // columns of both sides that are staged at a time
const uint OWN_FOURS = OWN / 4;
const uint PART_FOURS = PART / 4;
const uint OWN_PITCH = OWN_FOURS + 1;  // with one unused vec4, for rows are transposed on the way into shared memory
const uint WIDTH = PART * DEPTH;       // columns of the result that a workgroup computes at a time
const uint SOURCE_FOURS = PART_FOURS * DEPTH;  // vec4s of these columns
const uint SOURCE_ROWS = 2 * SIZE / SOURCE_FOURS;  // whose columns are staged at a time
layout(local_size_x = SIZE) in;
shared vec4 staged[2 * PIECE * OWN_PITCH];
shared vec4 factors[PART * OWN_PITCH];  // [other row][own row]
vec4 total[4 * MAX_DEPTH];              // [d][own row]: columns of the result
#define UNROLL(i, n) [[unroll]] for (uint i = 0; i < (n); ++i)

#if FOURS
#define FETCH(data) \
    const vec4 found = data[(start + min(column, count - 4)) / 4]; \
    return mix(vec4(0.0), found, bvec4(column < count));
#else
#define FETCH(data) \
    const uvec4 columns = column + uvec4(0, 1, 2, 3); \
    const uvec4 at = start + min(columns, uvec4(count - 1)); \
    return mix(vec4(0.0), vec4(data[at.x], data[at.y], data[at.z], data[at.w]), lessThan(columns, uvec4(count)));
#endif

// Four elements from `column` on of a row of `count` columns; zeros behind its end.
vec4 own_four(uint start, uint column, uint count) {
    FETCH(OWN_DATA)
}

vec4 other_four(uint start, uint column, uint count) {
    FETCH(OTHER_DATA)
}

vec4 source_four(uint start, uint column, uint count) {
    FETCH(SOURCE_DATA)
}

float minus_infinity() {
    return -infinity();
}

vec4 larger(vec4 a, vec4 b) {
    return vec4(larger(a.x, b.x), larger(a.y, b.y), larger(a.z, b.z), larger(a.w, b.w));
}

vec4 exponential(vec4 x) {
    return vec4(expf(x.x), expf(x.y), expf(x.z), expf(x.w));
}

uint own_four_of_me() {
    return gl_LocalInvocationID.x % OWN_FOURS;
}

uint part_four_of_me() {
    return gl_LocalInvocationID.x / OWN_FOURS;
}

// The other row of product k of this invocation, from the first one of the tile on.
uint other_row_of(uint k) {
    return k / 4 * PART + 4 * part_four_of_me() + k % 4;
}

void stage_column_by_column(uint first, uint piece_four, uint row, vec4 value) {
    UNROLL(i, 4) staged[first + (4 * piece_four + i) * OWN_PITCH + row / 4][row % 4] = value[i];
}

// Products of rows of `count` columns: products[k][r] of own row r and other row k. Both sides start at an element of their
// buffer, and rows behind the last one are read as this one.
void multiply(
    out vec4 products[4 * MAX_PARTS],
    uint own_start, uint own_row, uint own_rows,
    uint other_start, uint other_row, uint other_rows,
    uint count
) {
    const uint me = gl_LocalInvocationID.x;
    const uint row = me / 2, four = me % 2;
    UNROLL(k, 4 * MAX_PARTS) products[k] = vec4(0.0);
    if (count == 0) return;
    const uint own = own_start + min(own_row + row, own_rows - 1) * count;
    const uint other = other_start + min(other_row + row % OTHER, other_rows - 1) * count;
    vec4 next_own = own_four(own, 4 * four, count), next_other = other_four(other, 4 * four, count);
    for (uint first = 0; first < count; first += PIECE) {
        barrier();
        stage_column_by_column(0, four, row, next_own);
        stage_column_by_column(PIECE * OWN_PITCH, four, row, next_other);
        barrier();
        const uint column = first + PIECE + 4 * four;
        next_own = own_four(own, column, count);
        next_other = other_four(other, column, count);
        UNROLL(e, PIECE) {
            const vec4 a = staged[e * OWN_PITCH + own_four_of_me()];
            UNROLL(part, PARTS) {
                const vec4 b = staged[(PIECE + e) * OWN_PITCH + part * PART_FOURS + part_four_of_me()];
                UNROLL(k, 4) products[4 * part + k] += b[k] * a;
            }
        }
    }
}

void clear_total() {
    UNROLL(i, 4 * DEPTH) total[i] = vec4(0.0);
}

// The vec4s of a piece of SOURCE_ROWS rows that this invocation stages. Rows behind the last one are zeros: the memory there
// may hold nan.
vec4[2] source_piece(uint start, uint first_row, uint rows, uint first_column, uint count) {
    vec4 result[2];
    UNROLL(i, 2) {
        const uint t = gl_LocalInvocationID.x + i * SIZE;
        const uint row = first_row + t / SOURCE_FOURS;
        const uint column = first_column + 4 * (t % SOURCE_FOURS);
        const vec4 four = source_four(start + min(row, rows - 1) * count, column, count);
        result[i] = mix(vec4(0.0), four, bvec4(row < rows));
    }
    return result;
}

// Adds to `total` for each own row the sum of the part's rows of the source, `first_row` and the next ones, times this
// invocation's factors, [other row][own row].
void add_part(vec4 mine[4], uint start, uint first_row, uint rows, uint first_column, uint count) {
    vec4 next[2] = source_piece(start, first_row, rows, first_column, count);
    for (uint first = 0; first < PART; first += SOURCE_ROWS) {
        barrier();
        if (first == 0) {
            UNROLL(k, 4) factors[(4 * part_four_of_me() + k) * OWN_PITCH + own_four_of_me()] = mine[k];
        }
        UNROLL(i, 2) staged[gl_LocalInvocationID.x + i * SIZE] = next[i];
        barrier();
        next = source_piece(start, first_row + first + SOURCE_ROWS, rows, first_column, count);
        UNROLL(k, SOURCE_ROWS) {
            const vec4 factor = factors[(first + k) * OWN_PITCH + own_four_of_me()];
            UNROLL(d, DEPTH) {
                const vec4 four = staged[k * SOURCE_FOURS + PART_FOURS * d + part_four_of_me()];
                UNROLL(r, 4) total[4 * d + r] += factor[r] * four;
            }
        }
    }
}
