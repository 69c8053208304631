#version 450
// Transforms the rows of tiles of real images, or with INVERSE=1 the rows of transforms back to tiles.
//
// A map, the transform of one channel of one tile, has LENGTH / 2 + 1 columns of HEIGHT complex numbers, which are
// adjacent in memory: the other columns are conjugates. Two rows, as the real and the imaginary part of one row, are
// transformed at once.
//
// Tiles are numbered through all images. Element (i, j) of the tile at (down, right) is the image's element at
// ((down, right) * advance - shift + (i, j)) / step if that is an element of the image and (i, j) is between low and
// high, else 0. Grid: `count` pairs of rows, `pairs` of each map from `first_pair` on, the maps channel by channel from
// tile `first` on.
#extension GL_GOOGLE_include_directive : require
#include "divide.glsl"
#include "fft.glsl"
layout(constant_id = 1) const uint HEIGHT = 2;
layout(constant_id = 2) const uint step_h = 1;
layout(constant_id = 3) const uint step_w = 1;
#if INVERSE
layout(binding = 0) restrict readonly buffer U { vec4 u[]; };
layout(binding = 1) restrict readonly buffer Bias { float bias[]; };  // any buffer if there is no bias
layout(binding = 2) restrict writeonly buffer X { float x[]; };
#else
layout(binding = 0) restrict readonly buffer X { float x[]; };
layout(binding = 1) restrict writeonly buffer U { vec4 u[]; };
#endif
layout(push_constant) uniform Push {
    uint channels, height, width, shift_h, shift_w, low_h, low_w, high_h, high_w, advance_h, advance_w;
    uint tiles_per_row, tiles;  // tiles in a row and in an image
    uint offset, image_step;
    uint count, pairs, first_pair, first;
#if INVERSE
    float scale;
    uint has_bias, bias_offset;
#endif
} p;

// A map: where its channel of the image begins, and where its tile begins in the channel.
struct MapOrigin {
    uint channel, start, down, right;
};

MapOrigin origin_of(uint map) {
    const uvec2 tile = divided(map, p.channels);
    const uvec2 inside = divided(p.first + tile.x, p.tiles);
    const uvec2 at = divided(inside.y, p.tiles_per_row);
    MapOrigin origin;
    origin.channel = tile.y;
    origin.start = p.offset + inside.x * p.image_step + tile.y * p.height * p.width;
    origin.down = at.x * p.advance_h - p.shift_h;
    origin.right = at.y * p.advance_w - p.shift_w;
    return origin;
}

bool in_row(uint i, uint down) {
    return int(down) >= 0 && down % step_h == 0 && down / step_h < p.height && i >= p.low_h && i < p.high_h;
}

bool in_column(uint j, uint right) {
    return int(right) >= 0 && right % step_w == 0 && right / step_w < p.width && j >= p.low_w && j < p.high_w;
}

void main() {
#if INVERSE
    const uvec2 from = row_neighbours(), to = team_neighbours();
#else
    const uvec2 from = team_neighbours(), to = row_neighbours();
#endif
    const uint n = first_row() + from.x;
    const uvec2 map = divided(n, p.pairs);
    const uint pair = p.first_pair + map.y;
    const bool in_range = n < p.count;
#if INVERSE
    // The inverse is the transform with real and imaginary parts exchanged.
    LOOP(m, LENGTH / 2 / TEAM + 1) {
        const uint k = from.y + m * TEAM;
        if (k > LENGTH / 2) break;
        const vec4 z = in_range ? u[(map.x * (LENGTH / 2 + 1) + k) * (HEIGHT / 2) + pair] : vec4(0.0);
        values[index_of(from.x, k)] = vec2(z.y + z.z, z.x - z.w);
        if (k > 0 && k < LENGTH / 2) values[index_of(from.x, LENGTH - k)] = vec2(z.z - z.y, z.x + z.w);
    }
#else
    const MapOrigin tile = origin_of(map.x);
    const uint i = 2 * pair, down = tile.down + i;
    const bool has_a = in_range && in_row(i, down), has_b = in_range && in_row(i + 1, down + 1);
    const uint a = tile.start + down / step_h * p.width, b = tile.start + (down + 1) / step_h * p.width;
    LOOP(m, LENGTH / TEAM) {
        const uint j = from.y + m * TEAM;
        const uint right = tile.right + j;
        const bool at = in_column(j, right);
        const bool at_a = at && has_a, at_b = at && has_b;
        const float one = x[at_a ? a + right / step_w : p.offset];
        const float other = x[at_b ? b + right / step_w : p.offset];
        values[index_of(from.x, j)] = vec2(at_a ? one : 0.0, at_b ? other : 0.0);
    }
#endif
    transform();
    const uint out_n = first_row() + to.x;
    if (out_n >= p.count) return;
    const uvec2 out_map = divided(out_n, p.pairs);
    const uint out_pair = p.first_pair + out_map.y;
#if INVERSE
    const MapOrigin tile = origin_of(out_map.x);
    const uint i = 2 * out_pair, down = tile.down + i;
    const bool has_a = in_row(i, down), has_b = in_row(i + 1, down + 1);
    const uint a = tile.start + down / step_h * p.width, b = tile.start + (down + 1) / step_h * p.width;
    const float start = p.has_bias != 0 ? bias[p.bias_offset + tile.channel] : 0.0;
    LOOP(m, LENGTH / TEAM) {
        const uint j = to.y + m * TEAM;
        const uint right = tile.right + j;
        if (in_column(j, right)) {
            const vec2 pixels = result(to.x, j) * p.scale + start;
            if (has_a) x[a + right / step_w] = pixels.y;
            if (has_b) x[b + right / step_w] = pixels.x;
        }
    }
#else
    LOOP(m, LENGTH / 2 / TEAM + 1) {
        const uint k = to.y + m * TEAM;
        if (k > LENGTH / 2) break;
        const vec2 z = result(to.x, k), w = result(to.x, (LENGTH - k) & (LENGTH - 1));
        const vec4 both = 0.5 * vec4(z.x + w.x, z.y - w.y, z.y + w.y, w.x - z.x);
        u[(out_map.x * (LENGTH / 2 + 1) + k) * (HEIGHT / 2) + out_pair] = both;
    }
#endif
}
