#version 450
// The factors of batch_norm_backward.comp, (4, channels): the mean, the overall scale, the mean of the gradient, and the
// factor of x - mean. folded holds mean and 1 / deviation, sums the result of sums.comp.
layout(local_size_x = 64) in;
layout(binding = 0) readonly buffer Folded { float folded[]; };
layout(binding = 1) readonly buffer Sums { float sums[]; };
#if WEIGHT
layout(binding = 2) readonly buffer Weight { float weight[]; };
layout(binding = 3) writeonly buffer Y { float y[]; };
#else
layout(binding = 2) writeonly buffer Y { float y[]; };
#endif
layout(push_constant) uniform Push {
    uint channels;
    float count;
    uint sums_offset, weight_offset;
} p;

void main() {
    const uint step = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
    for (uint c = gl_GlobalInvocationID.x; c < p.channels; c += step) {
        const float scale = folded[p.channels + c];
        y[c] = folded[c];
#if WEIGHT
        y[p.channels + c] = scale * weight[p.weight_offset + c];
#else
        y[p.channels + c] = scale;
#endif
        y[2 * p.channels + c] = sums[p.sums_offset + c] / p.count;
        y[3 * p.channels + c] = sums[p.sums_offset + p.channels + c] / p.count * scale;
    }
}
