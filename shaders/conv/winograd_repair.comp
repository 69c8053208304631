#version 450
// Computes the tiles of a convolution again, one product after the other, whose first result is nan after
// Winograd's algorithm: an intermediate number was not finite, and only the results that it reaches may be so.
// With FLIP=1, Y is the gradient of an input, X the gradient of the results, and the filters are flipped.
//
// Grid: `count` tiles from `first` on over the invocations of x, filters in y.
#extension GL_GOOGLE_include_directive : require
#include "math/special.glsl"
#include "winograd.glsl"
layout(local_size_x_id = 0, local_size_y_id = 1) in;
layout(binding = 0) restrict readonly buffer X { float x[]; };
layout(binding = 1) restrict readonly buffer W { float w[]; };
layout(binding = 2) restrict readonly buffer Bias { float bias[]; };  // any buffer if there is no bias
layout(binding = 3) restrict buffer Y { float y[]; };
layout(push_constant) uniform Push {
    uint channels, in_height, in_width, padding_h, padding_w;
    uint filters, out_height, out_width;
    uint tiles_per_row, tiles;  // tiles of an image
    uint first, count;
    uint x_offset, w_offset, has_bias, bias_offset;
#ifdef EPILOGUE
    EPILOGUE_PUSH
#endif
} p;
#define FIRST_OPERAND 4
#include "epilogue.glsl"

#include "winograd_repair.glsl"

void main() {
    const uint row = gl_GlobalInvocationID.y;
    if (gl_GlobalInvocationID.x >= p.count || row >= p.filters) return;
    const uint tile = p.first + gl_GlobalInvocationID.x;
    const uint image = tile / p.tiles;
    const uint tile_in_image = tile % p.tiles;
    const uint top = tile_in_image / p.tiles_per_row * TILE;
    const uint left = tile_in_image % p.tiles_per_row * TILE;
    const uint plane = (image * p.filters + row) * p.out_height * p.out_width;
    if (!is_nan(y[plane + top * p.out_width + left])) return;
    for (uint i = top; i < min(top + TILE, p.out_height); ++i) {
        for (uint j = left; j < min(left + TILE, p.out_width); ++j) {
            const int from_top = int(i) - int(p.padding_h), from_left = int(j) - int(p.padding_w);
            const uint at = plane + i * p.out_width + j;
            y[at] = epilogue(plain_sum(image, row, from_top, from_left), at, row, 0);
        }
    }
}
