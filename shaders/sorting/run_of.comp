#version 450
// Of runs of elements that start at x, ascending: y[i] is the number of the run that element i is in, as an int64, or
// with ORDERED y[order[i]] is. LENGTHS: y[run] is the length of a run.
layout(local_size_x = 128) in;
layout(binding = 0) readonly buffer X { uint x[]; };
#if ORDERED
layout(binding = 1) readonly buffer Order { uint order[]; };
#endif
layout(binding = 1 + ORDERED) writeonly buffer Y { uvec2 y[]; };
layout(push_constant) uniform Push {
    uint n, runs;
} p;

void main() {
    const uint step = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
#if LENGTHS
    for (uint run = gl_GlobalInvocationID.x; run < p.runs; run += step) {
        const uint end = run + 1 < p.runs ? x[run + 1] : p.n;
        y[run] = uvec2(end - x[run], 0);
    }
#else
    for (uint i = gl_GlobalInvocationID.x; i < p.n; i += step) {
        uint low = 0, high = p.runs;  // the last start that is not behind i
        while (high - low > 1) {
            const uint middle = (low + high) / 2;
            if (x[middle] <= i) {
                low = middle;
            } else {
                high = middle;
            }
        }
#if ORDERED
        y[order[i]] = uvec2(low, 0);
#else
        y[i] = uvec2(low, 0);
#endif
    }
#endif
}
