#version 450
// Computes the gradients of 3x3 filters again, one product after the other, whose first element in U is nan after
// Winograd's algorithm: an intermediate number was not finite.
//
// A launch adds the products of `count` output pixels, numbered through all images, from `first` on to the sums of
// the launches before it, because on llvmpipe a loop may have only 65535 rounds. Grid: channels over the
// invocations of x, filters in y.
#extension GL_GOOGLE_include_directive : require
#include "math/special.glsl"
#include "winograd.glsl"
layout(local_size_x_id = 0, local_size_y_id = 1) in;
layout(binding = 0) restrict readonly buffer U { float u[]; };
layout(binding = 1) restrict readonly buffer G { float g[]; };
layout(binding = 2) restrict readonly buffer X { float x[]; };
layout(binding = 3) restrict buffer W { float w[]; };
layout(push_constant) uniform Push {
    uint rows, columns, pitch;
    uint height, width, padding_h, padding_w, out_height, out_width;
    uint first, count, g_offset, x_offset;
} p;

void main() {
    const uint column = gl_GlobalInvocationID.x;
    const uint row = gl_GlobalInvocationID.y;
    if (column >= p.columns || row >= p.rows || !is_nan(u[row * p.pitch + column])) return;
    const uint target = (row * p.columns + column) * 9;
    const uint pixels = p.out_height * p.out_width;
    float sum[9];
    UNROLL(tap, 9) sum[tap] = p.first > 0 ? w[target + tap] : 0.0;
    bool all_nan = false;  // all sums are nan, and stay nan
    for (uint i = p.first; i < p.first + p.count && !all_nan; ++i) {
        const uint image = i / pixels, pixel = i % pixels;
        const float gradient = g[p.g_offset + (image * p.rows + row) * pixels + pixel];
        const uint plane = p.x_offset + (image * p.columns + column) * p.height * p.width;
        all_nan = true;
        UNROLL(tap, 9) {
            const uint down = pixel / p.out_width + tap / 3 - p.padding_h;
            const uint right = pixel % p.out_width + tap % 3 - p.padding_w;
            const bool inside = down < p.height && right < p.width;  // zeros around the image are multiplied too
            sum[tap] += gradient * (inside ? x[plane + down * p.width + right] : 0.0);
            all_nan = all_nan && is_nan(sum[tap]);
        }
    }
    UNROLL(tap, 9) w[target + tap] = sum[tap];
}
