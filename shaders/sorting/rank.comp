#version 450
// Sorts short rows of keys: each invocation counts the elements that come before its own. y[row, rank] is the index of
// the element in the row; the first `keep` ranks are written. KEY is uint, or uvec2 for keys of two words.
layout(local_size_x = 128) in;
layout(binding = 0) readonly buffer X { KEY x[]; };
layout(binding = 1) writeonly buffer Y { int y[]; };
layout(push_constant) uniform Push {
    uint n, size, keep;  // all elements, elements of a row
} p;

bool less(uint a, uint b) {
    return a < b;
}

bool less(uvec2 a, uvec2 b) {
    return a.y < b.y || (a.y == b.y && a.x < b.x);
}

void main() {
    const uint step = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
    for (uint e = gl_GlobalInvocationID.x; e < p.n; e += step) {
        const uint row = e / p.size;
        const uint base = row * p.size;
        const uint mine = e - base;
        const KEY key = x[e];
        uint rank = 0;
        for (uint i = 0; i < p.size; ++i) {
            const KEY other = x[base + i];
            rank += less(other, key) || (other == key && i < mine) ? 1 : 0;
        }
        if (rank < p.keep) y[row * p.keep + rank] = int(mine);
    }
}
