#version 450
// y = x, where the last axis of y, along which its elements lie side by side, is another one than that of x. An
// invocation reads four rows of four elements and writes four columns. `across` counts fours along y's last axis,
// `along` those along x's; strides and offsets are fours too: x_stride from one element along y's last axis to the
// next, y_stride from one along x's. Two more axes are in front.
layout(local_size_x = 128) in;
layout(binding = 0) readonly buffer X { uvec4 x[]; };
layout(binding = 1) writeonly buffer Y { uvec4 y[]; };
layout(push_constant) uniform Push {
    uint x_offset, y_offset, along, across, x_stride, y_stride;
    uint sizes[2];
    uint x_strides[2];
    uint y_strides[2];
} p;
const uint WIDTH = 4;  // tiles of a workgroup along x's last axis: a cache line
const uint HEIGHT = 32;

void main() {
    const uint me = gl_LocalInvocationID.x;
    const uint a = gl_WorkGroupID.x * WIDTH + me / HEIGHT;
    const uint b = gl_WorkGroupID.y * HEIGHT + me % HEIGHT;
    if (a >= p.along || b >= p.across) return;
    for (uint outer = gl_WorkGroupID.z; outer < p.sizes[0] * p.sizes[1]; outer += gl_NumWorkGroups.z) {
        const uint first = outer / p.sizes[1];
        const uint second = outer - first * p.sizes[1];
        const uint from = p.x_offset + first * p.x_strides[0] + second * p.x_strides[1] + 4 * b * p.x_stride + a;
        const uvec4 r0 = x[from];
        const uvec4 r1 = x[from + p.x_stride];
        const uvec4 r2 = x[from + 2 * p.x_stride];
        const uvec4 r3 = x[from + 3 * p.x_stride];
        const uint to = p.y_offset + first * p.y_strides[0] + second * p.y_strides[1] + 4 * a * p.y_stride + b;
        y[to] = uvec4(r0.x, r1.x, r2.x, r3.x);
        y[to + p.y_stride] = uvec4(r0.y, r1.y, r2.y, r3.y);
        y[to + 2 * p.y_stride] = uvec4(r0.z, r1.z, r2.z, r3.z);
        y[to + 3 * p.y_stride] = uvec4(r0.w, r1.w, r2.w, r3.w);
    }
}
