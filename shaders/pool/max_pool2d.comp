#version 450
// One invocation computes one element of y (planes, OH, OW) from its window in x (planes, H, W).
layout(local_size_x = 64) in;
layout(binding = 0) readonly buffer X { float x[]; };
layout(binding = 1) writeonly buffer Y { float y[]; };
layout(push_constant) uniform Push {
    uint n, x_offset;
    int height, width, out_height, out_width;
    int kernel_h, kernel_w, stride_h, stride_w, padding_h, padding_w, dilation_h, dilation_w;
} p;

void main() {
    const uint step = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
    for (uint i = gl_GlobalInvocationID.x; i < p.n; i += step) {
        const int column = int(i) % p.out_width;
        const int row = int(i) / p.out_width % p.out_height;
        const int plane = int(i) / (p.out_width * p.out_height);
        const int top = row * p.stride_h - p.padding_h;
        const int left = column * p.stride_w - p.padding_w;
        float best = uintBitsToFloat(0xff800000u);  // -inf
        for (int a = 0; a < p.kernel_h; ++a) {
            const int r = top + a * p.dilation_h;
            if (r < 0 || r >= p.height) continue;
            for (int b = 0; b < p.kernel_w; ++b) {
                const int c = left + b * p.dilation_w;
                if (c < 0 || c >= p.width) continue;
                const float v = x[p.x_offset + (plane * p.height + r) * p.width + c];
                // Written so that a nan is taken and then kept.
                best = v <= best ? best : (isnan(best) ? best : v);
            }
        }
        y[i] = best;
    }
}
