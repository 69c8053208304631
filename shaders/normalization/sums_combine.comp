#version 450
// The sum of x (slices, n) over the slices. FACTORS: a binding for the factors of batch_norm_backward_fold.comp, with that
// of folded and of the weight, with WEIGHT, behind it; n is 2 * channels.
layout(local_size_x = 64) in;
layout(binding = 0) readonly buffer X { float x[]; };
layout(binding = 1) writeonly buffer Y { float y[]; };
layout(push_constant) uniform Push {
    uint n, slices;
#ifdef FACTORS
    float count;
    uint weight_offset;
#endif
} p;
#ifdef FACTORS
layout(binding = FACTORS) writeonly buffer Factors { float factors[]; };
layout(binding = FACTORS + 1) readonly buffer Folded { float folded[]; };
#if WEIGHT
layout(binding = FACTORS + 2) readonly buffer Weight { float weight[]; };
#endif
#endif

void main() {
    const uint step = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
    for (uint i = gl_GlobalInvocationID.x; i < p.n; i += step) {
        float sum = 0.0;
        for (uint s = 0; s < p.slices; ++s) sum += x[s * p.n + i];
        y[i] = sum;
#ifdef FACTORS
        const uint channels = p.n / 2;
        if (i < channels) {
            factors[i] = folded[i];
#if WEIGHT
            factors[channels + i] = folded[channels + i] * weight[p.weight_offset + i];
#else
            factors[channels + i] = folded[channels + i];
#endif
            factors[2 * channels + i] = sum / p.count;
        } else {
            factors[2 * channels + i] = sum / p.count * folded[i];
        }
#endif
    }
}
