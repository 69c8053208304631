#version 450
// A stable sort of indices, one step: `runs` neighbouring runs of `run` elements each, which are sorted, become one.
// An element's place is the number of elements of these runs that go before it, found by halving: no shared memory, and
// the same order in every run. y holds pairs of index and position; x does, too, or with FIRST the indices, which
// are runs of one element. A negative index goes last.

layout(local_size_x = 128) in;
#if FIRST
layout(binding = 0) readonly buffer X { int x[]; };
#else
layout(binding = 0) readonly buffer X { uvec2 x[]; };
#endif
layout(binding = 1) writeonly buffer Y { uvec2 y[]; };
layout(push_constant) uniform Push {
    uint n, run, runs;
} p;

#if FIRST
uvec2 pair(uint i) {
    return uvec2(x[i], i);
}

uint key(uint i) {
    return uint(x[i]);
}
#else
uvec2 pair(uint i) {
    return x[i];
}

uint key(uint i) {
    return x[i].x;
}
#endif

void main() {
    const uint step = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
    for (uint i = gl_GlobalInvocationID.x; i < p.n; i += step) {
        const uvec2 own = pair(i);
        const uint own_run = i / p.run;
        const uint first_run = own_run / p.runs * p.runs;
        uint place = first_run * p.run + i - own_run * p.run;
        for (uint r = first_run; r < first_run + p.runs && r * p.run < p.n; ++r) {
            if (r == own_run) continue;
            const uint start = r * p.run;
            uint low = start, high = min(start + p.run, p.n);
            while (low < high) {
                const uint middle = (low + high) / 2;
                const uint other = key(middle);
                if (other < own.x || (other == own.x && r < own_run)) {
                    low = middle + 1;
                } else {
                    high = middle;
                }
            }
            place += low - start;
        }
        y[place] = own;
    }
}
