#version 450
// The other way than im2col: each pixel of an image sums what the columns hold for it, over the taps that
// meet it, in their order. Nothing is added up in memory, so that the result is always the same.
//
// The columns are a plain matrix, row (channel, tap), `out_pixels` in a row. Grid: the pixels of an image
// over the invocations of x, in steps, channels in y, images in z.
layout(local_size_x = 64) in;
// Constants, so that the divisions by them are none, or shifts.
layout(constant_id = 0) const uint stride_d = 1;
layout(constant_id = 1) const uint stride_h = 1;
layout(constant_id = 2) const uint stride_w = 1;
layout(constant_id = 3) const uint kernel_d = 1;
layout(constant_id = 4) const uint kernel_h = 1;
layout(constant_id = 5) const uint kernel_w = 1;
layout(binding = 0) restrict readonly buffer Columns { float columns[]; };
layout(binding = 1) restrict writeonly buffer Y { float y[]; };
layout(push_constant) uniform Push {
    uint padding_d, padding_h, padding_w, dilation_d, dilation_h, dilation_w;
    uint depth, height, width, out_depth, out_height, out_width;
    uint y_offset, y_step, columns_step;  // steps from image to image
    uint step;  // invocations of the grid along x
} p;

float gather(uint pixel) {
    const int layer = int(pixel / (p.width * p.height) + p.padding_d);
    const int row = int(pixel / p.width % p.height + p.padding_h);
    const int column = int(pixel % p.width + p.padding_w);
    const uint out_plane = p.out_height * p.out_width;
    const uint out_pixels = p.out_depth * out_plane;
    uint from = gl_WorkGroupID.z * p.columns_step
              + gl_WorkGroupID.y * kernel_d * kernel_h * kernel_w * out_pixels;
    float sum = 0.0;
    for (uint a = 0; a < kernel_d; ++a) {
        const int deep = layer - int(a * p.dilation_d);
        const uint d = uint(deep) / stride_d;
        const bool at_d = deep >= 0 && d * stride_d == uint(deep) && d < p.out_depth;
        for (uint b = 0; b < kernel_h; ++b) {
            const int down = row - int(b * p.dilation_h);
            const uint h = uint(down) / stride_h;
            const bool at_h = at_d && down >= 0 && h * stride_h == uint(down) && h < p.out_height;
            for (uint c = 0; c < kernel_w; ++c) {
                const int right = column - int(c * p.dilation_w);
                const uint w = uint(right) / stride_w;
                const bool here = at_h && right >= 0 && w * stride_w == uint(right) && w < p.out_width;
                const float value = columns[from + (here ? d * out_plane + h * p.out_width + w : 0)];
                sum += here ? value : 0.0;
                from += out_pixels;
            }
        }
    }
    return sum;
}

void main() {
    const uint plane = p.depth * p.height * p.width;
    const uint to = p.y_offset + gl_WorkGroupID.z * p.y_step + gl_WorkGroupID.y * plane;
    for (uint pixel = gl_GlobalInvocationID.x; pixel < plane; pixel += p.step) y[to + pixel] = gather(pixel);
}
