#version 450
// Computes the results of a convolution again, one product after the other, that are not finite after Fourier
// transforms: one nan or infinity in an image makes all results of its tiles nan.
//
//  PASS=0  y (filters, out pixels) from x (channels, pixels): the convolution, plus a bias
//  PASS=1  y (channels, pixels) from x (filters, out pixels): the gradient of the input
//
// Grid: the `count` elements of y over the invocations of x and y.
#extension GL_EXT_control_flow_attributes : require
#extension GL_GOOGLE_include_directive : require
#include "math/special.glsl"
#include "divide.glsl"
layout(local_size_x = 64) in;
layout(binding = 0) restrict readonly buffer X { float x[]; };
layout(binding = 1) restrict readonly buffer W { float w[]; };
#if PASS
layout(binding = 2) restrict buffer Y { float y[]; };
#else
layout(binding = 2) restrict readonly buffer Bias { float bias[]; };  // any buffer if there is no bias
layout(binding = 3) restrict buffer Y { float y[]; };
#endif
layout(push_constant) uniform Push {
    uint kernel_h, kernel_w, stride_h, stride_w, padding_h, padding_w, dilation_h, dilation_w;
    uint height, width, out_height, out_width;
    uint groups, channels, filters;  // of a group
    uint count, x_offset, w_offset;
    uint has_bias, bias_offset;
} p;

// Whether a tap meets an element of x at a position, and its index `at`.
#if PASS
bool meets(uint position, uint tap, uint padding, uint dilation, uint stride, uint size, out uint at) {
    const uint from = position + padding - tap * dilation;
    at = from / stride;
    return int(from) >= 0 && at * stride == from && at < size;
}
#else
bool meets(uint position, uint tap, uint padding, uint dilation, uint stride, uint size, out uint at) {
    at = position * stride + tap * dilation - padding;  // negative ones wrap to large numbers
    return at < size;
}
#endif

void main() {
    const uint target = gl_GlobalInvocationID.y * gl_NumWorkGroups.x * gl_WorkGroupSize.x + gl_GlobalInvocationID.x;
    if (target >= p.count || is_finite(y[target])) return;
#if PASS
    const uint height = p.height, width = p.width, maps = p.channels, inner = p.filters;
    const uint from_height = p.out_height, from_width = p.out_width;
#else
    const uint height = p.out_height, width = p.out_width, maps = p.filters, inner = p.channels;
    const uint from_height = p.height, from_width = p.width;
#endif
    const uvec2 plane_of = divided(target, width * height), pixel = divided(plane_of.y, width);
    const uint row = pixel.x, column = pixel.y;
    const uvec2 image = divided(plane_of.x, maps * p.groups), group = divided(image.y, maps);
    float sum = 0.0;
#if !PASS
    if (p.has_bias != 0) sum = bias[p.bias_offset + image.y];
#endif
    for (uint k = 0; k < inner && !is_nan(sum); ++k) {
        const uint plane = p.x_offset + ((image.x * p.groups + group.x) * inner + k) * from_height * from_width;
#if PASS
        const uint filter_ = (group.x * inner + k) * maps + group.y;
#else
        const uint filter_ = image.y * inner + k;
#endif
        for (uint i = 0; i < p.kernel_h && !is_nan(sum); ++i) {
            uint down;
            const bool in_row = meets(row, i, p.padding_h, p.dilation_h, p.stride_h, from_height, down);
            const uint taps = p.w_offset + (filter_ * p.kernel_h + i) * p.kernel_w;
            for (uint j = 0; j < p.kernel_w; j += 4) {
                [[unroll]] for (uint n = j; n < j + 4; ++n) {
                    uint right;
                    const bool in_column = n < p.kernel_w &&
                        meets(column, n, p.padding_w, p.dilation_w, p.stride_w, from_width, right);
                    const float value = x[in_column && in_row ? plane + down * from_width + right : p.x_offset];
                    const float weight = w[n < p.kernel_w ? taps + n : p.w_offset];
#if PASS
                    sum += in_column && in_row ? value * weight : 0.0;
#else
                    sum += n < p.kernel_w ? (in_column && in_row ? value : 0.0) * weight : 0.0;
#endif
                }
            }
        }
    }
    y[target] = sum;
}
