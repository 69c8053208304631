#version 450
// Max pooling with windows that tile the image: each pixel lies in exactly one, and consecutive planes are read as one
// tall plane.
//
//  BACKWARD=0  y (planes, OH, OW) is the largest element of each tile; nan is larger than everything
//  BACKWARD=1  y (planes, H, W) is the gradient: g (planes, OH, OW) at the first of the largest elements, or the last nan
//
// FOURS: rows of an image are read and written four elements at a time, of one tile or of several.
#extension GL_EXT_control_flow_attributes : require
#extension GL_GOOGLE_include_directive : require
#include "math/special.glsl"
#include "divide.glsl"
#define UNROLL(i, n) [[unroll]] for (int i = 0; i < (n); ++i)
layout(local_size_x = 64) in;
layout(constant_id = 0) const int kernel_h = 2;
layout(constant_id = 1) const int kernel_w = 2;
layout(constant_id = 2) const uint FOURS = 0;
layout(binding = 0) restrict readonly buffer X { float x[]; };
layout(binding = 0) restrict readonly buffer X4 { vec4 x4[]; };
#if BACKWARD
layout(binding = 1) restrict readonly buffer G { float g[]; };
layout(binding = 2) restrict writeonly buffer Y { float y[]; };
layout(binding = 2) restrict writeonly buffer Y4 { vec4 y4[]; };
#else
layout(binding = 1) restrict writeonly buffer Y { float y[]; };
#endif
layout(push_constant) uniform Push {
    uint n, out_width;  // number of tiles, in all and in a row
    uint x_offset, g_offset;
} p;

const int TILES = FOURS != 0 ? 4 / kernel_w : 1;  // side by side, of one invocation
const int WIDE = TILES * kernel_w;

void main() {
    const uint width = p.out_width * kernel_w;
    const uint step = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
    for (uint i = gl_GlobalInvocationID.x; i < p.n / TILES; i += step) {
        const uvec2 tile = divided(i, p.out_width / TILES);
        const uint start = tile.x * kernel_h * width + tile.y * WIDE;
        float best[TILES];
        int index[TILES];
        UNROLL(r, kernel_h) {
            float row[WIDE];
            if (FOURS != 0) {
                const vec4 four = x4[(p.x_offset + start + r * width) / 4];
                UNROLL(c, WIDE) row[c] = four[c % 4];
            } else {
                UNROLL(c, WIDE) row[c] = x[p.x_offset + start + r * width + c];
            }
            UNROLL(c, WIDE) {
                const int t = c / kernel_w;
                const bool first = r == 0 && c % kernel_w == 0;
                const bool is_larger = first || is_nan(row[c]) || (row[c] > best[t] && !is_nan(best[t]));
                best[t] = is_larger ? row[c] : best[t];
                index[t] = is_larger ? r * kernel_w + c % kernel_w : index[t];
            }
        }
#if BACKWARD
        float value[TILES];
        UNROLL(t, TILES) value[t] = g[p.g_offset + i * TILES + t];
        UNROLL(r, kernel_h) {
            float row[WIDE];
            UNROLL(c, WIDE) row[c] = index[c / kernel_w] == r * kernel_w + c % kernel_w ? value[c / kernel_w] : 0.0;
            if (FOURS != 0) {
                y4[(start + r * width) / 4] = vec4(row[0], row[1 % WIDE], row[2 % WIDE], row[3 % WIDE]);
            } else {
                UNROLL(c, WIDE) y[start + r * width + c] = row[c];
            }
        }
#else
        UNROLL(t, TILES) y[i * TILES + t] = best[t];
#endif
    }
}
