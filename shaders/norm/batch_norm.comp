#version 450
// y = (x - mean[c]) * scale[c], with BIAS plus bias[c]; x and y of shape (N, channels, inner). batch_norm_fold.comp has
// made the scale. The mean is subtracted first: x * scale + shift would lose what both have in common.
layout(local_size_x = 64) in;
layout(binding = 0) readonly buffer X { float x[]; };
layout(binding = 1) readonly buffer Folded { float folded[]; };
#if BIAS
layout(binding = 2) readonly buffer Bias { float bias[]; };
layout(binding = 3) writeonly buffer Y { float y[]; };
#else
layout(binding = 2) writeonly buffer Y { float y[]; };
#endif
layout(push_constant) uniform Push {
    uint n, channels, inner, x_offset, bias_offset;
} p;

void main() {
    const uint step = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
    for (uint i = gl_GlobalInvocationID.x; i < p.n; i += step) {
        const uint c = i / p.inner % p.channels;
        float value = (x[p.x_offset + i] - folded[c]) * folded[p.channels + c];
#if BIAS
        value += bias[p.bias_offset + c];
#endif
        y[i] = value;
    }
}
