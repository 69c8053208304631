#version 450
// The gradient of a depthwise convolution's weight. One workgroup sums up one element of a filter: its
// invocations stride over the output pixels of all images, and combine their sums in a tree, so that the
// order of additions, and with it the result, is always the same. Grid: taps in x, filters in y.
const uint SIZE = 64;
layout(local_size_x = SIZE) in;
layout(binding = 0) restrict readonly buffer G { float g[]; };
layout(binding = 1) restrict readonly buffer X { float x[]; };
layout(binding = 2) restrict writeonly buffer Y { float y[]; };
layout(push_constant) uniform Push {
    uint kernel_d, kernel_h, kernel_w, stride_d, stride_h, stride_w;
    uint padding_d, padding_h, padding_w, dilation_d, dilation_h, dilation_w;
    uint depth, height, width, out_depth, out_height, out_width;
    uint images, channels, multiplier, g_offset, x_offset;
    uint rows;  // workgroups along y
} p;
shared float partial[SIZE];

void main() {
    const uint lane = gl_LocalInvocationID.x;
    const uint tap = gl_WorkGroupID.x;
    const uint i0 = tap / (p.kernel_w * p.kernel_h) * p.dilation_d - p.padding_d;  // negative ones wrap
    const uint j0 = tap / p.kernel_w % p.kernel_h * p.dilation_h - p.padding_h;
    const uint k0 = tap % p.kernel_w * p.dilation_w - p.padding_w;
    const uint plane = p.depth * p.height * p.width;
    const uint out_plane = p.out_depth * p.out_height * p.out_width;
    const uint filters = p.channels * p.multiplier;
    for (uint f = gl_WorkGroupID.y; f < filters; f += p.rows) {
        float sum = 0.0;
        for (uint image = 0; image < p.images; ++image) {
            const uint g_start = p.g_offset + (image * filters + f) * out_plane;
            const uint x_start = p.x_offset + (image * p.channels + f / p.multiplier) * plane;
            for (uint pixel = lane; pixel < out_plane; pixel += SIZE) {
                const uint i = pixel / (p.out_width * p.out_height) * p.stride_d + i0;
                const uint j = pixel / p.out_width % p.out_height * p.stride_h + j0;
                const uint k = pixel % p.out_width * p.stride_w + k0;
                const bool inside = i < p.depth && j < p.height && k < p.width;
                const float value = x[x_start + (inside ? (i * p.height + j) * p.width + k : 0)];
                sum += (inside ? value : 0.0) * g[g_start + pixel];
            }
        }
        partial[lane] = sum;
        for (uint half_size = SIZE / 2; half_size > 0; half_size /= 2) {
            barrier();
            if (lane < half_size) partial[lane] += partial[lane + half_size];
        }
        barrier();
        if (lane == 0) y[f * p.kernel_d * p.kernel_h * p.kernel_w + tap] = partial[0];
        barrier();
    }
}
