#version 450
// y[y_offset + i] = word for n words.

layout(local_size_x = 128) in;
layout(binding = 0) writeonly buffer Y { uint y[]; };
layout(push_constant) uniform Push {
    uint n;
    uint y_offset;
    uint word;
} p;

void main() {
    const uint step = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
    for (uint i = gl_GlobalInvocationID.x; i < p.n; i += step) {
        y[p.y_offset + i] = p.word;
    }
}
