#version 450
// y[i] is 1 where the i-th key starts a run of equal keys, else 0; with ORDERED the i-th key is x[order[i]]. With p.floats
// the largest key is that of nan, which equals nothing. KEY is uint, or uvec2 for keys of two words.
layout(local_size_x = 128) in;
layout(binding = 0) readonly buffer X { KEY x[]; };
#if ORDERED
layout(binding = 1) readonly buffer Order { uint order[]; };
#endif
layout(binding = 1 + ORDERED) writeonly buffer Y { uint y[]; };
layout(push_constant) uniform Push {
    uint n, floats, largest;
} p;

#if ORDERED
#define KEY_AT(i) x[order[i]]
#else
#define KEY_AT(i) x[i]
#endif

void main() {
    const uint step = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
    for (uint i = gl_GlobalInvocationID.x; i < p.n; i += step) {
        const KEY mine = KEY_AT(i);
        bool starts = i == 0 || (p.floats != 0 && mine == KEY(p.largest));
        if (!starts) starts = KEY_AT(i - 1) != mine;
        y[i] = starts ? 1 : 0;
    }
}
