#version 450
// The mean of each window of x (planes, H, W), or its gradient.
//
//  BACKWARD=0  y (planes, OH, OW) holds the means
//  BACKWARD=1  y (planes, H, W) sums, for each pixel, the elements of x (planes, OH, OW) of the windows that contain
//              it, each divided as the mean was; always in the same order, so that results are reproducible
//
//  ADAPTIVE=1  windows divide the image into parts; otherwise they slide along it
layout(local_size_x = 64) in;
layout(binding = 0) restrict readonly buffer X { float x[]; };
layout(binding = 1) restrict writeonly buffer Y { float y[]; };
layout(push_constant) uniform Push {
    uint n, x_offset;
    int height, width, out_height, out_width;
    int kernel_h, kernel_w, stride_h, stride_w, padding_h, padding_w;
    int include_pad, divisor;  // whether padding counts; the divisor of the user, or 0
} p;

// Along one axis: the first element of window `o` in the image, its end, and the number of elements that count.
ivec3 span(int o, int size, int out_size, int kernel, int stride, int padding) {
#if ADAPTIVE
    const int first = o * size / out_size, end = ((o + 1) * size + out_size - 1) / out_size;
    return ivec3(first, end, end - first);
#else
    const int start = o * stride - padding;
    const int first = max(start, 0), end = min(start + kernel, size);
    return ivec3(first, end, p.include_pad != 0 ? min(start + kernel, size + padding) - start : end - first);
#endif
}
ivec3 vertical(int o) { return span(o, p.height, p.out_height, p.kernel_h, p.stride_h, p.padding_h); }
ivec3 horizontal(int o) { return span(o, p.width, p.out_width, p.kernel_w, p.stride_w, p.padding_w); }
float divisor(int rows, int columns) { return float(p.divisor != 0 ? p.divisor : rows * columns); }

#if BACKWARD
// Along one axis: the first window that contains element `i`, and the end of these windows.
ivec2 windows(int i, int size, int out_size, int kernel, int stride, int padding) {
#if ADAPTIVE
    return ivec2(i * out_size / size, ((i + 1) * out_size + size - 1) / size);
#else
    const int earliest = i + padding - kernel + 1;
    return ivec2(earliest > 0 ? (earliest + stride - 1) / stride : 0, min((i + padding) / stride + 1, out_size));
#endif
}
#endif

void main() {
    const uint step = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
    for (uint i = gl_GlobalInvocationID.x; i < p.n; i += step) {
        float sum = 0.0;
#if BACKWARD
        const int column = int(i) % p.width;
        const int row = int(i) / p.width % p.height;
        const int plane = int(i) / (p.width * p.height);
        const ivec2 down = windows(row, p.height, p.out_height, p.kernel_h, p.stride_h, p.padding_h);
        const ivec2 along = windows(column, p.width, p.out_width, p.kernel_w, p.stride_w, p.padding_w);
        for (int r = down.x; r < down.y; ++r) {
            const int rows = vertical(r).z;
            for (int c = along.x; c < along.y; ++c) {
                const float value = x[p.x_offset + uint((plane * p.out_height + r) * p.out_width + c)];
                sum += value / divisor(rows, horizontal(c).z);
            }
        }
        y[i] = sum;
#else
        const int column = int(i) % p.out_width;
        const int row = int(i) / p.out_width % p.out_height;
        const int plane = int(i) / (p.out_width * p.out_height);
        const ivec3 down = vertical(row), along = horizontal(column);
        for (int r = down.x; r < down.y; ++r) {
            for (int c = along.x; c < along.y; ++c) {
                sum += x[p.x_offset + uint((plane * p.height + r) * p.width + c)];
            }
        }
        y[i] = sum / divisor(down.z, along.z);
#endif
    }
}
