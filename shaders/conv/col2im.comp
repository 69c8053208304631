#version 450
// The reverse of im2col: each pixel of an image sums the elements of the columns that belong to it, over the
// taps that meet it, in their order. Nothing is added up in memory, so the result is always the same.
//
// The columns are a plain matrix with rows (channel, tap) of `out_pixels` elements. Grid: the pixels of an image
// over the invocations of x, in strides; channels in y; images in z.
layout(local_size_x = 64) in;
// Constants, so that divisions by them become shifts or vanish.
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
    uint y_offset, y_step, columns_step;  // the steps lead from image to image
    uint step;  // invocations of the grid along x
} p;

float sum_of_taps(uint pixel) {
    const int layer = int(pixel / (p.width * p.height) + p.padding_d);
    const int row = int(pixel / p.width % p.height + p.padding_h);
    const int column = int(pixel % p.width + p.padding_w);
    const uint out_plane = p.out_height * p.out_width;
    const uint out_pixels = p.out_depth * out_plane;
    uint from = gl_WorkGroupID.z * p.columns_step
              + gl_WorkGroupID.y * kernel_d * kernel_h * kernel_w * out_pixels;
    float sum = 0.0;
    for (uint a = 0; a < kernel_d; ++a) {
        const int in_layer = layer - int(a * p.dilation_d);
        const uint d = uint(in_layer) / stride_d;
        const bool at_d = in_layer >= 0 && d * stride_d == uint(in_layer) && d < p.out_depth;
        for (uint b = 0; b < kernel_h; ++b) {
            const int in_row = row - int(b * p.dilation_h);
            const uint h = uint(in_row) / stride_h;
            const bool at_h = at_d && in_row >= 0 && h * stride_h == uint(in_row) && h < p.out_height;
            for (uint c = 0; c < kernel_w; ++c) {
                const int in_column = column - int(c * p.dilation_w);
                const uint w = uint(in_column) / stride_w;
                const bool inside = at_h && in_column >= 0 && w * stride_w == uint(in_column) && w < p.out_width;
                const float value = columns[from + (inside ? d * out_plane + h * p.out_width + w : 0)];
                sum += inside ? value : 0.0;
                from += out_pixels;
            }
        }
    }
    return sum;
}

void main() {
    const uint plane = p.depth * p.height * p.width;
    const uint to = p.y_offset + gl_WorkGroupID.z * p.y_step + gl_WorkGroupID.y * plane;
    for (uint pixel = gl_GlobalInvocationID.x; pixel < plane; pixel += p.step) y[to + pixel] = sum_of_taps(pixel);
}
