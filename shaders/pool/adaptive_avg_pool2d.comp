#version 450
// One invocation computes one element of y (planes, OH, OW): the mean of its part of x (planes, H, W).
layout(local_size_x = 64) in;
layout(binding = 0) readonly buffer X { float x[]; };
layout(binding = 1) writeonly buffer Y { float y[]; };
layout(push_constant) uniform Push {
    uint n, x_offset, height, width, out_height, out_width;
} p;

void main() {
    const uint step = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
    for (uint i = gl_GlobalInvocationID.x; i < p.n; i += step) {
        const uint column = i % p.out_width;
        const uint row = i / p.out_width % p.out_height;
        const uint plane = i / (p.out_width * p.out_height);
        const uint top = row * p.height / p.out_height;
        const uint bottom = ((row + 1) * p.height + p.out_height - 1) / p.out_height;
        const uint left = column * p.width / p.out_width;
        const uint right = ((column + 1) * p.width + p.out_width - 1) / p.out_width;
        float sum = 0.0;
        for (uint r = top; r < bottom; ++r) {
            for (uint c = left; c < right; ++c) {
                sum += x[p.x_offset + (plane * p.height + r) * p.width + c];
            }
        }
        y[i] = sum / float((bottom - top) * (right - left));
    }
}
