#version 450
// Unrolls the windows of a convolution into the columns of a matrix, so that the convolution becomes a
// matrix product: column `pixel` of row (channel, tap) is the pixel that element `tap` of a filter meets in
// that channel at that output pixel, or 0 outside the image.
//
// `count` output pixels from `first` on are unrolled. The columns lie in panels of `panel` columns, each with
// all rows, because the product reads them in this order; there are `pitch` columns in all, and the columns
// beyond `count` are filled with 0. Grid: pitch / 4 over the invocations of x, taps and CHANNELS channels
// at a time in y, images in z. With VOLUME=0 images have one layer.
#extension GL_EXT_control_flow_attributes : require
#define UNROLL(i, n) [[unroll]] for (int i = 0; i < (n); ++i)
const uint CHANNELS = 4;  // of an invocation; they share the arithmetic of indices
layout(local_size_x = 64) in;
layout(binding = 0) restrict readonly buffer X { float x[]; };
layout(binding = 1) restrict writeonly buffer Columns { vec4 columns[]; };
layout(push_constant) uniform Push {
    uint kernel_d, kernel_h, kernel_w, stride_d, stride_h, stride_w;
    uint padding_d, padding_h, padding_w, dilation_d, dilation_h, dilation_w;
    uint channels, depth, height, width, out_height, out_width;
    uint first, count, pitch, panel;
    uint x_offset, x_step, columns_step;  // the steps lead from image to image
} p;

void main() {
    const uint quad = gl_GlobalInvocationID.x;
    if (quad * 4 >= p.pitch) return;
    const uint taps = p.kernel_d * p.kernel_h * p.kernel_w;
    const uint tap = gl_WorkGroupID.y % taps;
    const uint channel = gl_WorkGroupID.y / taps * CHANNELS;
    const int down = int(tap / p.kernel_w % p.kernel_h * p.dilation_h) - int(p.padding_h);
    const int right = int(tap % p.kernel_w * p.dilation_w) - int(p.padding_w);
#if VOLUME
    const int deep = int(tap / (p.kernel_w * p.kernel_h) * p.dilation_d) - int(p.padding_d);
#endif

    // Loads from a valid address and a select: no load is behind a branch.
    uint at[4];
    bool inside[4];
    UNROLL(e, 4) {
        const uint pixel = p.first + quad * 4 + e;
        const int column = int(pixel % p.out_width * p.stride_w) + right;
#if VOLUME
        const uint line = pixel / p.out_width;
        const int row = int(line % p.out_height * p.stride_h) + down;
        const int layer = int(line / p.out_height * p.stride_d) + deep;
        const uint start = uint(layer) * p.height;
        inside[e] = uint(layer) < p.depth && uint(row) < p.height && uint(column) < p.width;
#else
        const int row = int(pixel / p.out_width * p.stride_h) + down;
        const uint start = 0;
        inside[e] = uint(row) < p.height && uint(column) < p.width;
#endif
        inside[e] = inside[e] && quad * 4 + e < p.count;
        at[e] = inside[e] ? (start + uint(row)) * p.width + uint(column) : 0;
    }
    const uint plane = p.depth * p.height * p.width;
    const uint panel_vectors = p.panel / 4;
    uint source = p.x_offset + gl_WorkGroupID.z * p.x_step + channel * plane;
    uint target = gl_WorkGroupID.z * p.columns_step / 4 + quad % panel_vectors
                + (quad / panel_vectors * p.channels * taps + channel * taps + tap) * panel_vectors;
    UNROLL(i, CHANNELS) {
        if (channel + i < p.channels) {
            vec4 values;
            UNROLL(e, 4) {
                const float value = x[source + at[e]];
                values[e] = inside[e] ? value : 0.0;
            }
            columns[target] = values;
        }
        source += plane;
        target += taps * panel_vectors;
    }
}
