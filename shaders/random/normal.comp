#version 450
#extension GL_GOOGLE_include_directive : require
#include "philox.glsl"
// n numbers, normal with the given mean and standard deviation. dl4all/ops/core/philox.py says how, and does
// the same: in integers, because devices round logarithms, square roots and quotients as they like.

layout(local_size_x = 128) in;
layout(binding = 0) readonly buffer Table { int table[]; };
layout(binding = 1) writeonly buffer Y { float y[]; };
layout(push_constant) uniform Push {
    uint n;
    uint y_offset;
    uvec2 key, start;
    float mean, std;
} p;

int upper(int a, int b) {
    int high, low;
    imulExtended(a, b, high, low);
    return high;
}

float normal(uint word) {
    const uint m = word & 0x7fffffffu;
    const int leading = findMSB(m);
    const uint shifted = m << (31 - max(leading, 0));  // the leading bit, four of the segment, the fraction
    const uint at = 4 * (uint(leading + 1) * 16 + (shifted >> 27 & 15));
    const int fraction = int((shifted << 5) >> 1);
    int value = upper(table[at + 3], fraction) + table[at + 2];
    value = upper(value, fraction) + table[at + 1];
    value = upper(value, fraction) + table[at];
    // To 24 bits, halves to the even one. What is left converts exactly.
    uint size = uint(max(value, 0));
    const int dropped = findMSB(size) - 23;
    if (dropped > 0) {
        size += (1u << (dropped - 1)) - 1 + (size >> dropped & 1);
        size = size >> dropped << dropped;
    }
    const float result = float(size) * (1.0 / 268435456.0);
    return (word >> 31) != 0 ? -result : result;
}

void main() {
    const uint step = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
    for (uint j = gl_GlobalInvocationID.x; j < (p.n + 3) / 4; j += step) {
        const uvec4 words = random_words(p.key, p.start, j);
        for (uint k = 0; k < 4 && 4 * j + k < p.n; ++k) {
            precise float scaled = normal(words[k]) * p.std;  // not fused, so that it is rounded as everywhere
            precise float shifted = p.mean + scaled;
            y[p.y_offset + 4 * j + k] = shifted;
        }
    }
}
