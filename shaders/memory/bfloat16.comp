#version 450
// Conversion between bfloat16, the upper half of a float32, two elements per word, and float32. PACK: float32 to
// bfloat16, rounding to nearest, ties to even. It computes with integers only, so every device gives the same bits.
layout(local_size_x = 128) in;
layout(binding = 0) readonly buffer X { uint x[]; };
layout(binding = 1) writeonly buffer Y { uint y[]; };
layout(push_constant) uniform Push {
    uint n, x_offset;  // in elements
} p;

uint rounded(uint bits) {
    if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fc0u;  // nan
    return (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;     // a carry increments the exponent, as it must
}

void main() {
    const uint step = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
#if PACK
    for (uint i = gl_GlobalInvocationID.x; i < (p.n + 1) / 2; i += step) {
        const uint index = 2 * i;
        const uint low = rounded(x[p.x_offset + index]);
        const uint high = index + 1 < p.n ? rounded(x[p.x_offset + index + 1]) : 0;
        y[i] = low | high << 16;
    }
#else
    for (uint i = gl_GlobalInvocationID.x; i < p.n; i += step) {
        const uint index = p.x_offset + i, word = x[index / 2];
        y[i] = (index & 1u) != 0u ? word & 0xffff0000u : word << 16;
    }
#endif
}
