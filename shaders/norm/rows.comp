#version 450
#extension GL_GOOGLE_include_directive : require
// Each row of x (rows, columns) minus its mean, divided by its standard deviation; without CENTER divided by the root of
// the mean of its squares. With WEIGHT and BIAS that is multiplied with a weight and a bias is added, those of element i
// are at i / inner % channels. LANES invocations take one row, in three passes: mean, variance, result.
const uint SIZE = 64;
const uint TX = SIZE / LANES;
layout(local_size_x = 64) in;
layout(binding = 0) readonly buffer X { float x[]; };
#if WEIGHT
layout(binding = 1) readonly buffer Weight { float weight[]; };
#endif
#if BIAS
layout(binding = WEIGHT + 1) readonly buffer Bias { float bias[]; };
#endif
layout(binding = WEIGHT + BIAS + 1) writeonly buffer Y { float y[]; };
layout(push_constant) uniform Push {
    uint rows, columns, inner, channels;
    float eps;
    uint x_offset, weight_offset, bias_offset;
} p;
#include "tree.glsl"

void main() {
    // The invocations of a row are TX apart, as total() has it; for one row for each workgroup they are neighbours.
    const uint place = gl_LocalInvocationID.x % TX;
    const uint lane = gl_LocalInvocationID.x / TX;
    for (uint block = gl_WorkGroupID.x; block * TX < p.rows; block += gl_NumWorkGroups.x) {
        const uint row = block * TX + place;
        const uint first = row * p.columns;
        const uint end = row < p.rows ? p.columns : 0;
        float mean = 0.0;
#if CENTER
        float sum = 0.0;
        for (uint c = lane; c < end; c += LANES) sum += x[p.x_offset + first + c];
        mean = total(sum) / float(p.columns);
#endif
        float squares = 0.0;
        for (uint c = lane; c < end; c += LANES) {
            const float d = x[p.x_offset + first + c] - mean;
            squares += d * d;
        }
        const float scale = 1.0 / sqrt(total(squares) / float(p.columns) + p.eps);
        for (uint c = lane; c < end; c += LANES) {
            const uint i = first + c;
            float value = (x[p.x_offset + i] - mean) * scale;
#if WEIGHT
            value *= weight[p.weight_offset + i / p.inner % p.channels];
#endif
#if BIAS
            value += bias[p.bias_offset + i / p.inner % p.channels];
#endif
            y[i] = value;
        }
    }
}
