#version 450
// The factors of batch_norm.comp, (2, channels): the means, then 1 / sqrt(variance + eps), times the weight with WEIGHT.
// A kernel of its own, because some devices bind no more than four buffers.
layout(local_size_x = 64) in;
layout(binding = 0) readonly buffer Mean { float mean[]; };
layout(binding = 1) readonly buffer Variance { float variance[]; };
#if WEIGHT
layout(binding = 2) readonly buffer Weight { float weight[]; };
layout(binding = 3) writeonly buffer Folded { float folded[]; };
#else
layout(binding = 2) writeonly buffer Folded { float folded[]; };
#endif
layout(push_constant) uniform Push {
    uint channels;
    float eps;
    uint mean_offset, variance_offset, weight_offset;
} p;

void main() {
    const uint step = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
    for (uint c = gl_GlobalInvocationID.x; c < p.channels; c += step) {
        float scale = 1.0 / sqrt(variance[p.variance_offset + c] + p.eps);
#if WEIGHT
        scale *= weight[p.weight_offset + c];
#endif
        folded[c] = mean[p.mean_offset + c];
        folded[p.channels + c] = scale;
    }
}
