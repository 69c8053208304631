#version 450
// y = x, where x and y have stride 1 along different axes. An invocation loads four rows of a tile of 4 by 4 elements
// and stores its four columns. x_tiles and y_tiles count tiles along the axis in which x and y have stride 1; x_stride
// is the stride of x along y's axis, y_stride that of y along x's. Strides and offsets count uvec4s. There are two more
// axes in front.
layout(local_size_x = 128) in;
layout(binding = 0) readonly buffer X { uvec4 x[]; };
layout(binding = 1) writeonly buffer Y { uvec4 y[]; };
layout(push_constant) uniform Push {
    uint x_offset, y_offset, x_tiles, y_tiles, x_stride, y_stride;
    uint sizes[2];
    uint x_strides[2];
    uint y_strides[2];
} p;
// Tiles of a workgroup: a cache line along x's axis.
const uint WIDTH = 4;
const uint HEIGHT = 32;

void main() {
    const uint lane = gl_LocalInvocationID.x;
    const uint x_tile = gl_WorkGroupID.x * WIDTH + lane / HEIGHT;
    const uint y_tile = gl_WorkGroupID.y * HEIGHT + lane % HEIGHT;
    if (x_tile >= p.x_tiles || y_tile >= p.y_tiles) return;
    for (uint batch = gl_WorkGroupID.z; batch < p.sizes[0] * p.sizes[1]; batch += gl_NumWorkGroups.z) {
        const uint first = batch / p.sizes[1];
        const uint second = batch - first * p.sizes[1];
        const uint x_start =
            p.x_offset + first * p.x_strides[0] + second * p.x_strides[1] + 4 * y_tile * p.x_stride + x_tile;
        const uvec4 r0 = x[x_start];
        const uvec4 r1 = x[x_start + p.x_stride];
        const uvec4 r2 = x[x_start + 2 * p.x_stride];
        const uvec4 r3 = x[x_start + 3 * p.x_stride];
        const uint y_start =
            p.y_offset + first * p.y_strides[0] + second * p.y_strides[1] + 4 * x_tile * p.y_stride + y_tile;
        y[y_start] = uvec4(r0.x, r1.x, r2.x, r3.x);
        y[y_start + p.y_stride] = uvec4(r0.y, r1.y, r2.y, r3.y);
        y[y_start + 2 * p.y_stride] = uvec4(r0.z, r1.z, r2.z, r3.z);
        y[y_start + 3 * p.y_stride] = uvec4(r0.w, r1.w, r2.w, r3.w);
    }
}
