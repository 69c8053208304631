#version 450
// Depthwise convolution: each filter sees one channel, and `multiplier` filters see the same channel. There is
// too little to multiply for a matrix product: one invocation computes one pixel of the result.
//
//  PASS=0  y (filters, out pixels) from x (channels, pixels): the convolution, plus a bias
//  PASS=1  y (channels, pixels) from x (filters, out pixels): the gradient of the input
//
// Grid: pixels of y over the invocations of x, channels or filters in y and images in z, all in strides.
layout(local_size_x = 64) in;
layout(binding = 0) restrict readonly buffer X { float x[]; };
layout(binding = 1) restrict readonly buffer W { float w[]; };
#if PASS
layout(binding = 2) restrict writeonly buffer Y { float y[]; };
#else
layout(binding = 2) restrict readonly buffer Bias { float bias[]; };  // any buffer if there is no bias
layout(binding = 3) restrict writeonly buffer Y { float y[]; };
#endif
layout(push_constant) uniform Push {
    uint kernel_d, kernel_h, kernel_w, stride_d, stride_h, stride_w;
    uint padding_d, padding_h, padding_w, dilation_d, dilation_h, dilation_w;
    uint depth, height, width, out_depth, out_height, out_width;
    uint images, channels, multiplier, x_offset, w_offset;
    uint step, rows, layers;  // invocations of the grid along x, workgroups along y and z
    uint has_bias, bias_offset;
} p;

#if PASS
// One filter's part of the gradient of pixel (d, h, w): the sum over the results that the pixel takes part in.
float transposed(uint from, uint taps, uint d, uint h, uint w0) {
    float sum = 0.0;
    uint tap = taps;
    for (uint a = 0; a < p.kernel_d; ++a) {
        const int deep = int(d + p.padding_d) - int(a * p.dilation_d);
        const uint i = uint(deep) / p.stride_d;
        const bool at_i = deep >= 0 && i * p.stride_d == uint(deep) && i < p.out_depth;
        for (uint b = 0; b < p.kernel_h; ++b) {
            const int down = int(h + p.padding_h) - int(b * p.dilation_h);
            const uint j = uint(down) / p.stride_h;
            const bool at_j = at_i && down >= 0 && j * p.stride_h == uint(down) && j < p.out_height;
            for (uint c = 0; c < p.kernel_w; ++c) {
                const int right = int(w0 + p.padding_w) - int(c * p.dilation_w);
                const uint k = uint(right) / p.stride_w;
                const bool inside = at_j && right >= 0 && k * p.stride_w == uint(right) && k < p.out_width;
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
    for (uint a = 0; a < p.kernel_d; ++a) {
        const uint i = d * p.stride_d + a * p.dilation_d - p.padding_d;  // negative ones wrap to large numbers
        for (uint b = 0; b < p.kernel_h; ++b) {
            const uint j = h * p.stride_h + b * p.dilation_h - p.padding_h;
            const bool at_j = i < p.depth && j < p.height;
            for (uint c = 0; c < p.kernel_w; ++c) {
                const uint k = w0 * p.stride_w + c * p.dilation_w - p.padding_w;
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
    const uint taps = p.kernel_d * p.kernel_h * p.kernel_w;
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
                y[(image * p.channels + channel) * plane + pixel] = sum;
            }
#else
            for (uint f = gl_WorkGroupID.y; f < filters; f += p.rows) {
                const uint from = p.x_offset + (image * p.channels + f / p.multiplier) * plane;
                const float sum = correlate(from, p.w_offset + f * taps, d, h, column);
                const float start = p.has_bias != 0 ? bias[p.bias_offset + f] : 0.0;
                y[(image * filters + f) * out_plane + pixel] = sum + start;
            }
#endif
        }
    }
}
