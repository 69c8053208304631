#version 450
// y = (x - mean[c]) / sqrt(variance[c] + eps) * weight[c] + bias[c], x and y of shape (N, channels, inner).
layout(local_size_x = 64) in;
layout(binding = 0) readonly buffer X { float x[]; };
layout(binding = 1) readonly buffer Mean { float mean[]; };
layout(binding = 2) readonly buffer Variance { float variance[]; };
#if AFFINE
layout(binding = 3) readonly buffer Weight { float weight[]; };
layout(binding = 4) readonly buffer Bias { float bias[]; };
layout(binding = 5) writeonly buffer Y { float y[]; };
#else
layout(binding = 3) writeonly buffer Y { float y[]; };
#endif
layout(push_constant) uniform Push {
    uint n, channels, inner;
    float eps;
    uint x_offset, mean_offset, variance_offset;
#if AFFINE
    uint weight_offset, bias_offset;
#endif
} p;

void main() {
    const uint step = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
    for (uint i = gl_GlobalInvocationID.x; i < p.n; i += step) {
        const uint c = i / p.inner % p.channels;
        float scale = 1.0 / sqrt(variance[p.variance_offset + c] + p.eps);
        float shift = -mean[p.mean_offset + c] * scale;
#if AFFINE
        scale *= weight[p.weight_offset + c];
        shift = shift * weight[p.weight_offset + c] + bias[p.bias_offset + c];
#endif
        y[i] = x[p.x_offset + i] * scale + shift;
    }
}
