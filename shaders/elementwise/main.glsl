// Every invocation writes whole words of the result: one element each, four, or four bytes.
#if defined(Y_BYTES) && !defined(FOURS)
uint word(uint first, uint end) {
    uint word = 0;
    for (uint i = first; i < end; ++i) word |= (uint(result(i)) & 255u) << ((i & 3) * 8);
    return word;
}
#endif

void main() {
    const uint step = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
    const uint first = gl_GlobalInvocationID.x;
#if defined(FOURS)
    const uint length = p.sizes[RANK - 1] / 4;
    if (WALK == FLAT) {
        enter(0);
        for (uint i = first; i < p.n / 4; i += step) y_data[i] = WRITE(results(i));
        return;
    }
    // Short rows share a workgroup, each with the next power of 2 of invocations.
    const uint bits = min(uint(findMSB(length - 1) + 1), 7);
    const uint me = gl_LocalInvocationID.x;
    const uint rows = gl_NumWorkGroups.y << (7 - bits);
    for (uint row = (gl_WorkGroupID.y << (7 - bits)) + (me >> bits); row * length < p.n / 4; row += rows) {
        enter(row);
        const uint start = (gl_WorkGroupID.x << bits) + (me & ((1u << bits) - 1));
        for (uint i = start; i < length; i += gl_NumWorkGroups.x << bits) {
            y_data[row * length + i] = WRITE(results(i));
        }
    }
#elif RANK > 0
    const uint length = p.sizes[RANK - 1];
    if (WALK == SPREAD) {
        for (uint row = gl_WorkGroupID.y; row * length < p.n; row += gl_NumWorkGroups.y) {
            enter(row);
#ifdef Y_BYTES
            for (uint i = first; i < length / 4; i += step) y_data[row * (length / 4) + i] = word(4 * i, 4 * i + 4);
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
            const uvec2 place = divided(i, length);
            enter(place.x);
            word |= (uint(result(place.y)) & 255u) << ((i & 3) * 8);
        }
        y_data[w] = word;
    }
#else
    for (uint i = first; i < p.n; i += step) {
        const uvec2 place = divided(i, length);
        enter(place.x);
        y_data[i] = result(place.y);
    }
#endif
#elif defined(Y_BYTES)
    for (uint w = first; w < (p.n + 3) / 4; w += step) y_data[w] = word(4 * w, min(4 * w + 4, p.n));
#else
    for (uint i = first; i < p.n; i += step) y_data[i] = result(i);
#endif
}
