#version 450
// How many keys of an ascending row are less than a value's key, or with p.right not greater: where the value can be
// inserted, as an int64. x has one row, or as many as the values. KEY is uint, or uvec2 for keys of two words.
layout(local_size_x = 128) in;
layout(binding = 0) readonly buffer X { KEY x[]; };
layout(binding = 1) readonly buffer Values { KEY values[]; };
layout(binding = 2) writeonly buffer Y { uvec2 y[]; };
layout(push_constant) uniform Push {
    uint n, size, per_row;  // values, elements of a row, values of a row
    uint right;
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
        const KEY value = values[e];
        const uint base = e / p.per_row * p.size;
        uint low = 0, high = p.size;
        while (low < high) {
            const uint middle = (low + high) / 2;
            const KEY other = x[base + middle];
            if (less(other, value) || (p.right != 0 && other == value)) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        y[e] = uvec2(low, 0);
    }
}
