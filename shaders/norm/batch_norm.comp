#version 450
// y = (x - mean[c]) / sqrt(variance[c] + eps), x and y of shape (N, channels, inner). With AFFINE that is multiplied
// with a weight, and a bias is added: batch_norm_fold.comp has put mean, variance and weight together.
layout(local_size_x = 64) in;
layout(binding = 0) readonly buffer X { float x[]; };
#if AFFINE
layout(binding = 1) readonly buffer Folded { float folded[]; };
layout(binding = 2) readonly buffer Bias { float bias[]; };
#else
layout(binding = 1) readonly buffer Mean { float mean[]; };
layout(binding = 2) readonly buffer Variance { float variance[]; };
#endif
layout(binding = 3) writeonly buffer Y { float y[]; };
layout(push_constant) uniform Push {
    uint n, channels, inner, x_offset;
#if AFFINE
    uint bias_offset;
#else
    float eps;
    uint mean_offset, variance_offset;
#endif
} p;

void main() {
    const uint step = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
    for (uint i = gl_GlobalInvocationID.x; i < p.n; i += step) {
        const uint c = i / p.inner % p.channels;
#if AFFINE
        const float scale = folded[c];
        const float shift = folded[p.channels + c] + bias[p.bias_offset + c];
#else
        const float scale = 1.0 / sqrt(variance[p.variance_offset + c] + p.eps);
        const float shift = -mean[p.mean_offset + c] * scale;
#endif
        y[i] = x[p.x_offset + i] * scale + shift;
    }
}
