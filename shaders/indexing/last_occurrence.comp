#version 450
// Which of equal indices comes last. First MARK: last[index[j]], which is 0 before, becomes the largest j + 1. Then
// y[j] = index[j] where that is j + 1, and -1 elsewhere.

layout(local_size_x = 128) in;
layout(binding = 0) readonly buffer Index { int index[]; };
#if MARK
layout(binding = 1) buffer Last { uint last[]; };
#else
layout(binding = 1) readonly buffer Last { uint last[]; };
layout(binding = 2) writeonly buffer Y { int y[]; };
#endif
layout(push_constant) uniform Push {
    uint n;
} p;

void main() {
    const uint step = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
    for (uint j = gl_GlobalInvocationID.x; j < p.n; j += step) {
        const int row = index[j];
#if MARK
        if (row >= 0) atomicMax(last[row], j + 1);
#else
        y[j] = row >= 0 && last[row] == j + 1 ? row : -1;
#endif
    }
}
