#version 450
// Transforms the products of Winograd's convolution back: matrix `position` of the SIDE * SIDE in M has that element
// of each tile's product, a row for each filter and a column for each tile; rows are `pitch` apart. The elements of
// a tile beyond the result are left out.
//
// One infinity or nan in the image spreads over the whole tile: the first result of such a tile is set to nan,
// which tells winograd_repair.comp to compute it again. An epilogue leaves this mark as it is. With REPAIR, which takes
// two buffers more, the tile is computed again at once.
//
// Grid: `count` tiles from `first` on over the invocations of x, filters in y.
#extension GL_GOOGLE_include_directive : require
#include "math/special.glsl"
#include "winograd.glsl"
layout(local_size_x_id = 0, local_size_y_id = 1) in;
layout(binding = 0) restrict readonly buffer M { float m[]; };
layout(binding = 1) restrict readonly buffer Bias { float bias[]; };  // any buffer if there is no bias
#ifdef REPAIR
layout(binding = 2) restrict readonly buffer X { float x[]; };
layout(binding = 3) restrict readonly buffer W { float w[]; };
layout(binding = 4) restrict writeonly buffer Y { float y[]; };
#define FIRST_OPERAND 5
#else
layout(binding = 2) restrict writeonly buffer Y { float y[]; };
#define FIRST_OPERAND 3
#endif
layout(push_constant) uniform Push {
    uint filters, height, width;
    uint tiles_per_row, tiles;  // tiles of an image
    uint first, count, pitch, position_step;
    uint has_bias, bias_offset;
#ifdef REPAIR
    uint channels, in_height, in_width, padding_h, padding_w, x_offset, w_offset;
#endif
#ifdef EPILOGUE
    EPILOGUE_PUSH
#endif
} p;
#include "epilogue.glsl"
#ifdef REPAIR
#include "winograd_repair.glsl"
#endif

void main() {
    const uint column = gl_GlobalInvocationID.x;
    const uint row = gl_GlobalInvocationID.y;
    if (column >= p.count || row >= p.filters) return;
    uint source = row * p.pitch + column;
    float lines[SIDE][TILE];
    UNROLL(i, SIDE) {
        float line[SIDE];
        UNROLL(j, SIDE) {
            line[j] = m[source];
            source += p.position_step;
        }
        transform_result(line, lines[i]);
    }

    const uint tile = p.first + column;
    const uint tile_in_image = tile % p.tiles;
    const uint top = tile_in_image / p.tiles_per_row * TILE;
    const uint left = tile_in_image % p.tiles_per_row * TILE;
    const uint target = ((tile / p.tiles * p.filters + row) * p.height + top) * p.width + left;
    const float start = p.has_bias != 0 ? bias[p.bias_offset + row] : 0.0;
    float results[TILE][TILE];
    float sum = 0.0;
    UNROLL(j, TILE) {
        float line[SIDE];
        UNROLL(i, SIDE) line[i] = lines[i][j];
        transform_result(line, results[j]);
        UNROLL(i, TILE) sum += results[j][i];
    }
    const bool is_broken = !is_finite(sum);
    UNROLL(j, TILE) UNROLL(i, TILE) {
        const uint at = target + i * p.width + j;
        if (top + i < p.height && left + j < p.width) {
            const float value = epilogue(results[j][i] + start, at, row, 0);
#ifdef REPAIR
            y[at] = value;
#else
            y[at] = i == 0 && j == 0 && is_broken ? NAN : value;
#endif
        }
    }
#ifdef REPAIR
    if (!is_broken) return;
    for (uint i = 0; i < min(TILE, p.height - top); ++i) {
        for (uint j = 0; j < min(TILE, p.width - left); ++j) {
            const int from_top = int(top + i) - int(p.padding_h), from_left = int(left + j) - int(p.padding_w);
            const uint at = target + i * p.width + j;
            y[at] = epilogue(plain_sum(tile / p.tiles, row, from_top, from_left), at, row, 0);
        }
    }
#endif
}
