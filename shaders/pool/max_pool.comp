#version 450
// Max pooling of x (planes, H, W), the indices of the maxima, and the gradient.
//
//  PASS=MAXIMA    y (planes, OH, OW) is the largest element of each window; nan is larger than everything
//  PASS=INDICES   y is its index row * W + column: the first of equal elements, the last nan; NONE if the window holds
//                 only padding, which a dilated one can
//  PASS=TAKE      y (planes, OH, OW) is the element of x at each of the given indices
//  PASS=BACKWARD  y (planes, H, W) sums, for each pixel, the elements of x (planes, OH, OW) whose index is the pixel:
//                 the gradient. A pixel looks at the windows that contain it, always in the same order, so that
//                 results are reproducible.
//
//  ADAPTIVE=1  windows divide the image into parts; otherwise they slide along it
#define MAXIMA 0
#define INDICES 1
#define TAKE 2
#define BACKWARD 3
#extension GL_GOOGLE_include_directive : require
#include "math/special.glsl"
layout(local_size_x = 64) in;
layout(binding = 0) restrict readonly buffer X { float x[]; };
#if PASS == MAXIMA
layout(binding = 1) restrict writeonly buffer Y { float y[]; };
#elif PASS == INDICES
layout(binding = 1) restrict writeonly buffer Y { uint y[]; };
#else
layout(binding = 1) restrict readonly buffer Indices { uint indices[]; };
layout(binding = 2) restrict writeonly buffer Y { float y[]; };
#endif
layout(push_constant) uniform Push {
    uint n, x_offset;
    int height, width, out_height, out_width;
    int kernel_h, kernel_w, stride_h, stride_w, padding_h, padding_w, dilation_h, dilation_w;
} p;

const uint NONE = 0xffffffffu;

#if PASS == MAXIMA || PASS == INDICES
// Along one axis: the first element of window `o` in the image, and its end.
ivec2 span(int o, int size, int out_size, int kernel, int stride, int padding, int dilation) {
#if ADAPTIVE
    return ivec2(o * size / out_size, ((o + 1) * size + out_size - 1) / out_size);
#else
    const int start = o * stride - padding;
    const int first = start < 0 ? start + (-start + dilation - 1) / dilation * dilation : start;
    return ivec2(first, min(start + dilation * (kernel - 1) + 1, size));
#endif
}
#elif PASS == BACKWARD
// Along one axis: the first window that may contain element `i`, and the end of these windows.
ivec2 windows(int i, int size, int out_size, int kernel, int stride, int padding, int dilation) {
#if ADAPTIVE
    return ivec2(i * out_size / size, ((i + 1) * out_size + size - 1) / size);
#else
    const int earliest = i + padding - dilation * (kernel - 1);
    return ivec2(earliest > 0 ? (earliest + stride - 1) / stride : 0, min((i + padding) / stride + 1, out_size));
#endif
}
#endif

void main() {
    const uint step = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
    for (uint i = gl_GlobalInvocationID.x; i < p.n; i += step) {
#if PASS == BACKWARD
        const int column = int(i) % p.width;
        const int row = int(i) / p.width % p.height;
        const int plane = int(i) / (p.width * p.height);
        const ivec2 down = windows(row, p.height, p.out_height, p.kernel_h, p.stride_h, p.padding_h, p.dilation_h);
        const ivec2 along = windows(column, p.width, p.out_width, p.kernel_w, p.stride_w, p.padding_w, p.dilation_w);
        const uint pixel = uint(row * p.width + column);
        float sum = 0.0;
        for (int r = down.x; r < down.y; ++r) {
            for (int c = along.x; c < along.y; ++c) {
                const uint at = uint((plane * p.out_height + r) * p.out_width + c);
                const float value = x[p.x_offset + at];
                sum += indices[at] == pixel ? value : 0.0;
            }
        }
        y[i] = sum;
#else
        const int column = int(i) % p.out_width;
        const int row = int(i) / p.out_width % p.out_height;
        const int plane = int(i) / (p.out_width * p.out_height);
        const uint start = p.x_offset + uint(plane * p.height * p.width);
#if PASS == TAKE
        const uint at = indices[i];
        const float value = x[at == NONE ? start : start + at];
        y[i] = at == NONE ? 0.0 : value;
#else
        const ivec2 down = span(row, p.height, p.out_height, p.kernel_h, p.stride_h, p.padding_h, p.dilation_h);
        const ivec2 along = span(column, p.width, p.out_width, p.kernel_w, p.stride_w, p.padding_w, p.dilation_w);
        float best = uintBitsToFloat(0xff800000u);  // -inf
        uint at = NONE;
        for (int r = down.x; r < down.y; r += p.dilation_h) {
            for (int c = along.x; c < along.y; c += p.dilation_w) {
                const float v = x[start + uint(r * p.width + c)];
                if (at == NONE || is_nan(v) || (v > best && !is_nan(best))) {
                    best = v;
                    at = uint(r * p.width + c);
                }
            }
        }
#if PASS == MAXIMA
        y[i] = best;
#else
        y[i] = at;
#endif
#endif
#endif
    }
}
