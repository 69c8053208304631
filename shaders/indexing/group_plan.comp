#version 450
// The plan of take_rows_backward.comp from pairs of index and position that are sorted by both: `size` + 1 boundaries
// of the groups of equal indices, which count from the start of the plan, then the positions. Pairs of a negative index
// come last and belong to no group.

layout(local_size_x = 128) in;
layout(binding = 0) readonly buffer Pairs { uvec2 pairs[]; };
layout(binding = 1) writeonly buffer Plan { uint plan[]; };
layout(push_constant) uniform Push {
    uint n, size;
} p;

void main() {
    const uint step = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
    for (uint i = gl_GlobalInvocationID.x; i < p.n + p.size + 1; i += step) {
        if (i > p.size) {
            plan[i] = pairs[i - p.size - 1].y;
            continue;
        }
        uint low = 0, high = p.n;
        while (low < high) {
            const uint middle = (low + high) / 2;
            if (pairs[middle].x < i) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        plan[i] = low + p.size + 1;
    }
}
