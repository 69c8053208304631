#version 450
// Mean and variance (2, groups) from those of slices (slices, 2, groups); only the last slice may be shorter.
// Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for computing sample variances" (1979).
// FACTORS, WEIGHTED: bindings for the factors of batch_norm_fold.comp, without and with the weight, which is bound last.
layout(local_size_x = 64) in;
layout(binding = 0) readonly buffer X { float x[]; };
layout(binding = 1) writeonly buffer Y { float y[]; };
layout(push_constant) uniform Push {
    uint elements, groups, slice, slices;
#if defined(FACTORS) || defined(WEIGHTED)
    float eps;
    uint weight_offset;
#endif
} p;
#ifdef FACTORS
layout(binding = FACTORS) writeonly buffer Factors { float factors[]; };
#endif
#ifdef WEIGHTED
layout(binding = WEIGHTED) writeonly buffer Weighted { float weighted[]; };
layout(binding = WEIGHTED + 1) readonly buffer Weight { float weight[]; };
#endif

void main() {
    const uint step = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
    for (uint group = gl_GlobalInvocationID.x; group < p.groups; group += step) {
        float mean = 0.0;
        for (uint s = 0; s < p.slices; ++s) {
            const float share = float(min(p.slice, p.elements - s * p.slice)) / float(p.elements);
            mean += share * x[2 * s * p.groups + group];
        }
        float variance = 0.0;
        for (uint s = 0; s < p.slices; ++s) {
            const float share = float(min(p.slice, p.elements - s * p.slice)) / float(p.elements);
            const float d = x[2 * s * p.groups + group] - mean;
            variance += share * (x[(2 * s + 1) * p.groups + group] + d * d);
        }
        y[group] = mean;
        y[p.groups + group] = variance;
#ifdef FACTORS
        factors[group] = mean;
        factors[p.groups + group] = 1.0 / sqrt(variance + p.eps);
#endif
#ifdef WEIGHTED
        weighted[group] = mean;
        weighted[p.groups + group] = 1.0 / sqrt(variance + p.eps) * weight[p.weight_offset + group];
#endif
    }
}
