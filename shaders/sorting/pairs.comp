#version 450
// Elements as a radix sort moves them: a word of the key, and the index in the row. With FIRST they are in the order of
// the input, else in the order that the pairs have; `word` says which of the key's words. KEY is uint or uvec2.
layout(local_size_x = 128) in;
layout(binding = 0) readonly buffer X { KEY x[]; };
#if FIRST
layout(binding = 1) writeonly buffer Y { uvec2 y[]; };
#else
layout(binding = 1) readonly buffer Before { uvec2 before[]; };
layout(binding = 2) writeonly buffer Y { uvec2 y[]; };
#endif
layout(push_constant) uniform Push {
    uint n, size;  // all elements, elements of a row
} p;

uint first_word(uint key) {
    return key;
}

uint first_word(uvec2 key) {
    return key.x;
}

uint last_word(uint key) {
    return key;
}

uint last_word(uvec2 key) {
    return key.y;
}

void main() {
    const uint step = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
    for (uint e = gl_GlobalInvocationID.x; e < p.n; e += step) {
        const uint column = e % p.size;
#if FIRST
        y[e] = uvec2(first_word(x[e]), column);
#else
        const uint index = before[e].y;
        y[e] = uvec2(last_word(x[e - column + index]), index);
#endif
    }
}
