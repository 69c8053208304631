#version 450
// The index of each row's median, the lower one of two middle elements. Of rows with nan it is the index of the first nan,
// or with p.ignore_nan that of the other elements' median. order[row] sorts the keys x[row]; nan has the key p.largest.
// KEY is uint, or uvec2 for keys of two words.
layout(local_size_x = 128) in;
layout(binding = 0) readonly buffer X { KEY x[]; };
layout(binding = 1) readonly buffer Order { uint order[]; };
layout(binding = 2) writeonly buffer Y { uint y[]; };
layout(push_constant) uniform Push {
    uint rows, size;
    uint floats, largest;
    uint ignore_nan;
} p;

void main() {
    const uint step = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
    for (uint row = gl_GlobalInvocationID.x; row < p.rows; row += step) {
        const uint base = row * p.size;
        uint low = 0, high = p.size;  // the number of elements before the first nan
        while (low < high && p.floats != 0) {
            const uint middle = (low + high) / 2;
            if (x[base + order[base + middle]] == KEY(p.largest)) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        const uint count = p.floats != 0 ? low : p.size;
        uint at = (max(count, 1) - 1) / 2;
        if (p.ignore_nan == 0 && count < p.size) at = count;
        y[row] = order[base + at];
    }
}
