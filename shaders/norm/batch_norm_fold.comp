#version 450
// What batch_norm.comp multiplies a channel with, then what it adds before the bias: 1 / sqrt(variance + eps) * weight
// for every channel, and behind them -mean / sqrt(variance + eps) * weight. A kernel of its own, because every device
// binds four buffers and not every device more.
layout(local_size_x = 64) in;
layout(binding = 0) readonly buffer Mean { float mean[]; };
layout(binding = 1) readonly buffer Variance { float variance[]; };
layout(binding = 2) readonly buffer Weight { float weight[]; };
layout(binding = 3) writeonly buffer Folded { float folded[]; };
layout(push_constant) uniform Push {
    uint channels;
    float eps;
    uint mean_offset, variance_offset, weight_offset;
} p;

void main() {
    const uint step = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
    for (uint c = gl_GlobalInvocationID.x; c < p.channels; c += step) {
        const float scale = 1.0 / sqrt(variance[p.variance_offset + c] + p.eps);
        const float w = weight[p.weight_offset + c];
        folded[c] = scale * w;
        folded[p.channels + c] = -mean[p.mean_offset + c] * scale * w;
    }
}
