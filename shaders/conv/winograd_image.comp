#version 450
// Transforms images for Winograd's convolution: matrix `position` of the SIDE * SIDE in V has that element of each
// transformed tile, a row for each channel and a column for each tile; around the image there are zeros. Tiles
// are numbered through all images.
//
// `count` tiles from `first` on are transformed. The columns lie in panels of `panel` columns, each with all
// rows, because the product reads them in this order; there are `pitch` columns in all, and the columns beyond
// `count` are filled with 0. Grid: pitch columns over the invocations of x, channels in y.
//
// With GRADIENT=1 it transforms the gradient of the result to the gradient of the products: its tiles have
// TILE * TILE elements and do not overlap.
#extension GL_GOOGLE_include_directive : require
#include "winograd.glsl"
#if GRADIENT
#define EXTENT TILE
#define transform transform_gradient
#else
#define EXTENT SIDE
#define transform transform_image
#endif
layout(local_size_x_id = 0, local_size_y_id = 1) in;
layout(binding = 0) restrict readonly buffer X { float x[]; };
layout(binding = 1) restrict writeonly buffer V { float v[]; };
layout(push_constant) uniform Push {
    uint channels, height, width, padding_h, padding_w;
    uint tiles_per_row, tiles;  // tiles of an image
    uint first, count, pitch, panel;
    uint x_offset, x_step, position_step;  // the steps lead from image to image and from matrix to matrix
} p;

void main() {
    const uint column = gl_GlobalInvocationID.x;
    const uint channel = gl_GlobalInvocationID.y;
    if (column >= p.pitch || channel >= p.channels) return;
    const uint tile = p.first + column;
    const uint tile_in_image = tile % p.tiles;
    const int top = int(tile_in_image / p.tiles_per_row * TILE) - int(p.padding_h);
    const int left = int(tile_in_image % p.tiles_per_row * TILE) - int(p.padding_w);
    const uint start = p.x_offset + tile / p.tiles * p.x_step + channel * p.height * p.width;

    // Loads from a valid address and a select: no load is behind a branch.
    float d[SIDE][SIDE];
    bool in_row[EXTENT];
    UNROLL(j, EXTENT) in_row[j] = uint(left + j) < p.width;
    UNROLL(i, EXTENT) {
        const bool in_column = uint(top + i) < p.height && column < p.count;
        const uint row = start + uint(top + i) * p.width + uint(left);
        UNROLL(j, EXTENT) {
            const bool inside = in_column && in_row[j];
            const float value = x[inside ? row + j : p.x_offset];
            d[i][j] = inside ? value : 0.0;
        }
    }
    UNROLL(j, EXTENT) {
        float line[SIDE];
        UNROLL(i, EXTENT) line[i] = d[i][j];
        transform(line);
        UNROLL(i, SIDE) d[i][j] = line[i];
    }
    uint target = column % p.panel + (column / p.panel * p.channels + channel) * p.panel;
    UNROLL(i, SIDE) {
        transform(d[i]);
        UNROLL(j, SIDE) {
            v[target] = d[i][j];
            target += p.position_step;
        }
    }
}
