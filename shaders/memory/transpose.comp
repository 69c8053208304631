#version 450
// y = x, where x and y have stride 1 along different axes. An invocation loads four rows of a tile of 4 by 4 elements
// and stores its four columns. x_tiles and y_tiles count tiles along the axis in which x and y have stride 1; x_stride
// is the stride of x along y's axis, y_stride that of y along x's. Strides and offsets count rows of a tile. There are
// two more axes in front. Elements have BYTES bytes: 1, 2 or 4.
#if BYTES == 4
#define ROW uvec4
uint element(ROW row, int k) { return row[k]; }
ROW joined(uvec4 elements) { return elements; }
#elif BYTES == 2
#define ROW uvec2
uint element(ROW row, int k) { return bitfieldExtract(row[k / 2], k % 2 * 16, 16); }
ROW joined(uvec4 elements) { return elements.xz | elements.yw << 16; }
#else
#define ROW uint
uint element(ROW row, int k) { return bitfieldExtract(row, k * 8, 8); }
ROW joined(uvec4 elements) {
    return elements.x | elements.y << 8 | elements.z << 16 | elements.w << 24;
}
#endif

layout(local_size_x = 128) in;
layout(binding = 0) readonly buffer X { ROW x[]; };
layout(binding = 1) writeonly buffer Y { ROW y[]; };
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
        const ROW r0 = x[x_start];
        const ROW r1 = x[x_start + p.x_stride];
        const ROW r2 = x[x_start + 2 * p.x_stride];
        const ROW r3 = x[x_start + 3 * p.x_stride];
        const uint y_start =
            p.y_offset + first * p.y_strides[0] + second * p.y_strides[1] + 4 * x_tile * p.y_stride + y_tile;
        for (int k = 0; k < 4; ++k) {
            y[y_start + k * p.y_stride] = joined(uvec4(element(r0, k), element(r1, k), element(r2, k), element(r3, k)));
        }
    }
}
