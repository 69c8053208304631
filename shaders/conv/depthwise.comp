#version 450
#extension GL_EXT_control_flow_attributes : require
#extension GL_GOOGLE_include_directive : require
// Depthwise convolution: each filter sees one channel, and `multiplier` filters see the same channel. There is
// too little to multiply for a matrix product: one invocation computes one pixel of the result.
//
//  PASS=0  y (filters, out pixels) from x (channels, pixels): the convolution, plus a bias
//  PASS=1  y (channels, pixels) from x (filters, out pixels): the gradient of the input
//
// Grid: pixels of y over the invocations of x, channels or filters in y and images in z, all in strides.
// The window's sizes are constants of the program, so that the loops over it are unrolled.
layout(local_size_x = 64) in;
layout(constant_id = 0) const uint KERNEL_D = 1;
layout(constant_id = 1) const uint KERNEL_H = 3;
layout(constant_id = 2) const uint KERNEL_W = 3;
layout(constant_id = 3) const uint STRIDE_D = 1;
layout(constant_id = 4) const uint STRIDE_H = 1;
layout(constant_id = 5) const uint STRIDE_W = 1;
layout(binding = 0) restrict readonly buffer X { float x[]; };
layout(binding = 1) restrict readonly buffer W { float w[]; };
#if PASS
layout(binding = 2) restrict writeonly buffer Y { float y[]; };
#else
layout(binding = 2) restrict readonly buffer Bias { float bias[]; };  // any buffer if there is no bias
layout(binding = 3) restrict writeonly buffer Y { float y[]; };
#endif
layout(push_constant) uniform Push {
    uint padding_d, padding_h, padding_w, dilation_d, dilation_h, dilation_w;
    uint depth, height, width, out_depth, out_height, out_width;
    uint images, channels, multiplier, x_offset, w_offset;
    uint step, rows, layers;  // invocations of the grid along x, workgroups along y and z
    uint has_bias, bias_offset;
#ifdef EPILOGUE
    EPILOGUE_PUSH
#endif
} p;
#define FIRST_OPERAND (4 - PASS)
#include "epilogue.glsl"

#if PASS
// One filter's part of the gradient of pixel (d, h, w): the sum over the results that the pixel takes part in.
float transposed(uint from, uint taps, uint d, uint h, uint w0) {
    float sum = 0.0;
    uint tap = taps;
    [[unroll]] for (uint a = 0; a < KERNEL_D; ++a) {
        const int deep = int(d + p.padding_d) - int(a * p.dilation_d);
        const uint i = uint(deep) / STRIDE_D;
        const bool at_i = deep >= 0 && i * STRIDE_D == uint(deep) && i < p.out_depth;
        [[unroll]] for (uint b = 0; b < KERNEL_H; ++b) {
            const int down = int(h + p.padding_h) - int(b * p.dilation_h);
            const uint j = uint(down) / STRIDE_H;
            const bool at_j = at_i && down >= 0 && j * STRIDE_H == uint(down) && j < p.out_height;
            [[unroll]] for (uint c = 0; c < KERNEL_W; ++c) {
                const int right = int(w0 + p.padding_w) - int(c * p.dilation_w);
                const uint k = uint(right) / STRIDE_W;
                const bool inside = at_j && right >= 0 && k * STRIDE_W == uint(right) && k < p.out_width;
                const float value = x[from + (inside ? (i * p.out_height + j) * p.out_width + k : 0)];
                sum += inside ? value * w[tap] : 0.0;
                ++tap;
            }
        }
    }
    return sum;
}
#else
// The product of a filter with the window of the result at (d, h, w).
float correlate(uint from, uint taps, uint d, uint h, uint w0) {
    float sum = 0.0;
    uint tap = taps;
    [[unroll]] for (uint a = 0; a < KERNEL_D; ++a) {
        const uint i = d * STRIDE_D + a * p.dilation_d - p.padding_d;  // negative ones wrap to large numbers
        [[unroll]] for (uint b = 0; b < KERNEL_H; ++b) {
            const uint j = h * STRIDE_H + b * p.dilation_h - p.padding_h;
            const bool at_j = i < p.depth && j < p.height;
            [[unroll]] for (uint c = 0; c < KERNEL_W; ++c) {
                const uint k = w0 * STRIDE_W + c * p.dilation_w - p.padding_w;
                const bool inside = at_j && k < p.width;
                const float value = x[from + (inside ? (i * p.height + j) * p.width + k : 0)];
                sum += (inside ? value : 0.0) * w[tap];
                ++tap;
            }
        }
    }
    return sum;
}
#endif

void main() {
    const uint taps = KERNEL_D * KERNEL_H * KERNEL_W;
    const uint plane = p.depth * p.height * p.width;
    const uint out_plane = p.out_depth * p.out_height * p.out_width;
    const uint filters = p.channels * p.multiplier;
#if PASS
    const uint height = p.height, width = p.width, pixels = plane;
#else
    const uint height = p.out_height, width = p.out_width, pixels = out_plane;
#endif
    for (uint pixel = gl_GlobalInvocationID.x; pixel < pixels; pixel += p.step) {
        const uint d = pixel / (width * height), h = pixel / width % height, column = pixel % width;
        for (uint image = gl_WorkGroupID.z; image < p.images; image += p.layers) {
#if PASS
            for (uint channel = gl_WorkGroupID.y; channel < p.channels; channel += p.rows) {
                float sum = 0.0;
                for (uint m = 0; m < p.multiplier; ++m) {
                    const uint f = channel * p.multiplier + m;
                    const uint from = p.x_offset + (image * filters + f) * out_plane;
                    sum += transposed(from, p.w_offset + f * taps, d, h, column);
                }
                const uint at = (image * p.channels + channel) * plane + pixel;
                y[at] = epilogue(sum, at, channel, 0);
            }
#else
            for (uint f = gl_WorkGroupID.y; f < filters; f += p.rows) {
                const uint from = p.x_offset + (image * p.channels + f / p.multiplier) * plane;
                const float sum = correlate(from, p.w_offset + f * taps, d, h, column);
                const float start = p.has_bias != 0 ? bias[p.bias_offset + f] : 0.0;
                const uint at = (image * filters + f) * out_plane + pixel;
                y[at] = epilogue(sum + start, at, f, 0);
            }
#endif
        }
    }
}
