#version 450
#extension GL_GOOGLE_include_directive : require
// y[row, j] = x[row, index[row, j]], for elements of BYTES bytes. An invocation writes whole words.
#define KIND 0
layout(local_size_x = 128) in;
#if BYTES == 8
#define WORD uvec2
#else
#define WORD uint
#endif
layout(binding = 0) readonly buffer X { WORD x[]; };
layout(binding = 1) readonly buffer Index { uint index[]; };
layout(binding = 2) writeonly buffer Y { WORD y[]; };
layout(push_constant) uniform Push {
    uint n, x_offset, index_offset;
    uint size, count;  // elements of a row of the input and of the result
} p;
#include "elements.glsl"
const uint PER_WORD = BYTES < 4 ? 4 / BYTES : 1;

WORD selected(uint e) {
    const uint row = e / p.count;
    return ELEMENT(p.x_offset + row * p.size + index[p.index_offset + e]);
}

void main() {
    const uint step = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
    for (uint word = gl_GlobalInvocationID.x; word * PER_WORD < p.n; word += step) {
#if BYTES >= 4
        y[word] = selected(word);
#else
        uint packed = 0;
        for (uint k = 0; k < PER_WORD; ++k) {
            const uint e = word * PER_WORD + k;
            if (e < p.n) packed |= selected(e) << (8 * BYTES * k);
        }
        y[word] = packed;
#endif
    }
}
