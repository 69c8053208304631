// The loop over the result. Every invocation writes whole words: one element, four elements or four bytes at a time.
#if defined(Y_BYTES) && !defined(VEC4)
uint packed_results(uint begin, uint end) {
    uint word = 0;
    for (uint i = begin; i < end; ++i) word |= (uint(result(i)) & 255u) << ((i & 3) * 8);
    return word;
}
#endif

void main() {
    const uint step = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
    const uint first = gl_GlobalInvocationID.x;
#if defined(VEC4)
    const uint length = p.sizes[RANK - 1] / 4;
    if (WALK == WALK_FLAT) {
        begin_row(0);
        for (uint i = first; i < p.n / 4; i += step) y_data[i] = PACKED(result4(i));
        return;
    }
    // Short rows share a workgroup; each gets 2^bits invocations, the next power of 2 of its length.
    const uint bits = min(uint(findMSB(length - 1) + 1), 7);
    const uint lane = gl_LocalInvocationID.x;
    const uint rows = gl_NumWorkGroups.y << (7 - bits);
    for (uint row = (gl_WorkGroupID.y << (7 - bits)) + (lane >> bits); row * length < p.n / 4; row += rows) {
        begin_row(row);
        const uint start = (gl_WorkGroupID.x << bits) + (lane & ((1u << bits) - 1));
        for (uint i = start; i < length; i += gl_NumWorkGroups.x << bits) {
            y_data[row * length + i] = PACKED(result4(i));
        }
    }
#elif RANK > 0
    const uint length = p.sizes[RANK - 1];
    if (WALK == WALK_ROWS) {
        for (uint row = gl_WorkGroupID.y; row * length < p.n; row += gl_NumWorkGroups.y) {
            begin_row(row);
#ifdef Y_BYTES
            for (uint i = first; i < length / 4; i += step) {
                y_data[row * (length / 4) + i] = packed_results(4 * i, 4 * i + 4);
            }
#else
            for (uint i = first; i < length; i += step) y_data[row * length + i] = result(i);
#endif
        }
        return;
    }
#ifdef Y_BYTES
    for (uint w = first; w < (p.n + 3) / 4; w += step) {
        uint word = 0;
        for (uint i = 4 * w; i < min(4 * w + 4, p.n); ++i) {
            const uvec2 row_column = divided(i, length);
            begin_row(row_column.x);
            word |= (uint(result(row_column.y)) & 255u) << ((i & 3) * 8);
        }
        y_data[w] = word;
    }
#else
    for (uint i = first; i < p.n; i += step) {
        const uvec2 row_column = divided(i, length);
        begin_row(row_column.x);
        y_data[i] = result(row_column.y);
    }
#endif
#elif defined(Y_BYTES)
    for (uint w = first; w < (p.n + 3) / 4; w += step) y_data[w] = packed_results(4 * w, min(4 * w + 4, p.n));
#else
    for (uint i = first; i < p.n; i += step) y_data[i] = result(i);
#endif
}
