#version 450
#extension GL_GOOGLE_include_directive : require
#include "philox.glsl"
// Normal fill: n numbers with a mean and a standard deviation. dl4all/ops/core/expressions/philox.py describes the algorithm. It
// is computed in integers, because devices round logarithms, square roots and quotients differently.

layout(local_size_x = 128) in;
layout(binding = 0) readonly buffer Table { int table[]; };
layout(binding = 1) writeonly buffer Y { float y[]; };
layout(push_constant) uniform Push {
    uint n;
    uint y_offset;
    uvec2 key, start;
    float mean, std;
} p;

// The upper word of a 64-bit product.
int multiply_high(int a, int b) {
    int high, low;
    imulExtended(a, b, high, low);
    return high;
}

// The quantile of a random word, a cubic polynomial of the segment that the word lies in; its highest bit is the
// sign.
float normal(uint word) {
    const uint m = word & 0x7fffffffu;
    const int leading = findMSB(m);
    const uint shifted = m << (31 - max(leading, 0));  // the leading bit, four of the segment, the fraction
    const uint entry = 4 * (uint(leading + 1) * 16 + (shifted >> 27 & 15));
    const int fraction = int((shifted << 5) >> 1);
    int value = multiply_high(table[entry + 3], fraction) + table[entry + 2];
    value = multiply_high(value, fraction) + table[entry + 1];
    value = multiply_high(value, fraction) + table[entry];
    // Round to 24 bits, ties to even, so that the conversion to float is exact.
    uint magnitude = uint(max(value, 0));
    const int dropped = findMSB(magnitude) - 23;
    if (dropped > 0) {
        magnitude += (1u << (dropped - 1)) - 1 + (magnitude >> dropped & 1);
        magnitude = magnitude >> dropped << dropped;
    }
    const float result = float(magnitude) * (1.0 / 268435456.0);
    return (word >> 31) != 0 ? -result : result;
}

void main() {
    const uint step = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
    for (uint j = gl_GlobalInvocationID.x; j < (p.n + 3) / 4; j += step) {
        const uvec4 words = random_words(p.key, p.start, j);
        for (uint k = 0; k < 4 && 4 * j + k < p.n; ++k) {
            precise float scaled = normal(words[k]) * p.std;  // precise forbids fusing, which would round differently
            precise float shifted = p.mean + scaled;
            y[p.y_offset + 4 * j + k] = shifted;
        }
    }
}
