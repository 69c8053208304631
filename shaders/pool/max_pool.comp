#version 450
// The largest element of each window of x (planes, H, W), or what follows from where it lies.
//
//  PASS=0  y (planes, OH, OW) is the largest; nan is larger than everything
//  PASS=1  y is where it lies, as row * W + column: the first of equals, the last nan; NONE if the window has
//          nothing but padding, as dilated ones can
//  PASS=2  y is the element of another x there, whose places are given
//  PASS=3  y (planes, H, W) sums the elements of x (planes, OH, OW) whose places, which are given, it is: the
//          gradient. Each pixel asks the windows that meet it, in their order, so that the sum is always the same.
//
//  ADAPTIVE=1  windows cut the image into parts; else they slide along it
#extension GL_GOOGLE_include_directive : require
#include "math/special.glsl"
layout(local_size_x = 64) in;
layout(binding = 0) restrict readonly buffer X { float x[]; };
#if PASS == 0
layout(binding = 1) restrict writeonly buffer Y { float y[]; };
#elif PASS == 1
layout(binding = 1) restrict writeonly buffer Y { uint y[]; };
#else
layout(binding = 1) restrict readonly buffer Places { uint places[]; };
layout(binding = 2) restrict writeonly buffer Y { float y[]; };
#endif
layout(push_constant) uniform Push {
    uint n, x_offset;
    int height, width, out_height, out_width;
    int kernel_h, kernel_w, stride_h, stride_w, padding_h, padding_w, dilation_h, dilation_w;
} p;

const uint NONE = 0xffffffffu;

#if PASS < 2
// Along one axis: the first element of window `o` in the image, and the end.
ivec2 span(int o, int size, int out_size, int kernel, int stride, int padding, int dilation) {
#if ADAPTIVE
    return ivec2(o * size / out_size, ((o + 1) * size + out_size - 1) / out_size);
#else
    const int start = o * stride - padding;
    const int first = start < 0 ? start + (-start + dilation - 1) / dilation * dilation : start;
    return ivec2(first, min(start + dilation * (kernel - 1) + 1, size));
#endif
}
#elif PASS == 3
// Along one axis: the windows that could meet element `i`, from the first to the end.
ivec2 windows(int i, int size, int out_size, int kernel, int stride, int padding, int dilation) {
#if ADAPTIVE
    return ivec2(i * out_size / size, ((i + 1) * out_size + size - 1) / size);
#else
    const int behind = i + padding - dilation * (kernel - 1);
    return ivec2(behind > 0 ? (behind + stride - 1) / stride : 0, min((i + padding) / stride + 1, out_size));
#endif
}
#endif

void main() {
    const uint step = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
    for (uint i = gl_GlobalInvocationID.x; i < p.n; i += step) {
#if PASS == 3
        const int column = int(i) % p.width;
        const int row = int(i) / p.width % p.height;
        const int plane = int(i) / (p.width * p.height);
        const ivec2 down = windows(row, p.height, p.out_height, p.kernel_h, p.stride_h, p.padding_h, p.dilation_h);
        const ivec2 along = windows(column, p.width, p.out_width, p.kernel_w, p.stride_w, p.padding_w, p.dilation_w);
        const uint here = uint(row * p.width + column);
        float sum = 0.0;
        for (int r = down.x; r < down.y; ++r) {
            for (int c = along.x; c < along.y; ++c) {
                const uint at = uint((plane * p.out_height + r) * p.out_width + c);
                const float value = x[p.x_offset + at];
                sum += places[at] == here ? value : 0.0;
            }
        }
        y[i] = sum;
#else
        const int column = int(i) % p.out_width;
        const int row = int(i) / p.out_width % p.out_height;
        const int plane = int(i) / (p.out_width * p.out_height);
        const uint start = p.x_offset + uint(plane * p.height * p.width);
#if PASS == 2
        const uint at = places[i];
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
#if PASS == 0
        y[i] = best;
#else
        y[i] = at;
#endif
#endif
#endif
    }
}
