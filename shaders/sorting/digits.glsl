// A pass of a radix sort: BITS bits of each word, tiles of SIZE * RUN elements, RUN adjacent ones for each invocation.
const uint SIZE = 128;
const uint RUN = 16;
const uint TILE = SIZE * RUN;
const uint BINS = 16;
layout(local_size_x = SIZE) in;
layout(push_constant) uniform Push {
    uint tiles, size;       // all tiles, elements of a row
    uint per_row, columns;  // tiles of a row; columns: workgroups along x, the other ones along z
    uint shift;             // of the digit
} p;

shared uint counts[BINS * SIZE];  // by digit, then by invocation
