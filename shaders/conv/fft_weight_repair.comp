#version 450
// Computes the gradients of filters again, one product after the other, that are not finite after Fourier transforms:
// the first number of the filter's transform in U is not finite.
//
// A launch adds the products of `pixels` output pixels, numbered through all images, from `first` on to the sums of the
// launches before it, because on llvmpipe a loop may have only 65535 rounds. Grid: `count` gradients from `start` on over
// the invocations of x and y; U begins with the transform of the first one, and its transforms are `size` apart.
#extension GL_GOOGLE_include_directive : require
#include "math/special.glsl"
layout(local_size_x = 64) in;
layout(binding = 0) restrict readonly buffer U { float u[]; };
layout(binding = 1) restrict readonly buffer G { float g[]; };
layout(binding = 2) restrict readonly buffer X { float x[]; };
layout(binding = 3) restrict buffer W { float w[]; };
layout(push_constant) uniform Push {
    uint kernel_h, kernel_w, stride_h, stride_w, padding_h, padding_w, dilation_h, dilation_w;
    uint height, width, out_height, out_width;
    uint groups, channels, filters;  // of a group
    uint start, count, size, first, pixels, g_offset, x_offset;
} p;

void main() {
    const uint element = gl_GlobalInvocationID.y * gl_NumWorkGroups.x * gl_WorkGroupSize.x + gl_GlobalInvocationID.x;
    if (element >= p.count) return;
    const uint taps = p.kernel_h * p.kernel_w;
    const float first_number = u[element / taps * p.size];
    if (is_finite(first_number)) return;
    const uint target = p.start + element;
    const uint tap = target % taps, filter_ = target / (taps * p.channels);
    const uint channel = filter_ / p.filters * p.channels + target / taps % p.channels;
    const uint per_image = p.out_height * p.out_width;
    float sum = p.first > 0 ? w[target] : 0.0;
    for (uint i = p.first; i < p.first + p.pixels && !is_nan(sum); ++i) {
        const uint image = i / per_image, pixel = i % per_image;
        const uint down = pixel / p.out_width * p.stride_h + tap / p.kernel_w * p.dilation_h - p.padding_h;
        const uint right = pixel % p.out_width * p.stride_w + tap % p.kernel_w * p.dilation_w - p.padding_w;
        const bool inside = down < p.height && right < p.width;
        const uint plane = p.x_offset + (image * p.groups * p.channels + channel) * p.height * p.width;
        const float value = x[inside ? plane + down * p.width + right : p.x_offset];
        sum += (inside ? value : 0.0) * g[p.g_offset + (image * p.groups * p.filters + filter_) * per_image + pixel];
    }
    w[target] = sum;
}
