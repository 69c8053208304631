#version 450
// Conversion between floats of 16 bits, two elements per word, and float32: float16, or with BFLOAT16 bfloat16, the upper
// half of a float32. PACK: float32 to 16 bits, rounding to nearest, ties to even, which packHalf2x16 does on some drivers
// only. It computes with integers and uses no 16-bit type, so that every device can run it, and gives the same bits.
layout(local_size_x = 128) in;
#if PACK
layout(binding = 0) readonly buffer X { float x[]; };
layout(binding = 1) writeonly buffer Y { uint y[]; };
#else
layout(binding = 0) readonly buffer X { uint x[]; };
layout(binding = 1) writeonly buffer Y { vec2 y[]; };
#endif
layout(push_constant) uniform Push {
    uint n, x_offset;  // in elements (PACK) or words
} p;

#if PACK && BFLOAT16
uint half_of(float value) {
    const uint bits = floatBitsToUint(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fc0u;  // nan
    return (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;     // a carry increments the exponent, as it must
}
#elif PACK
uint half_of(float value) {
    const uint bits = floatBitsToUint(value);
    const uint sign = (bits >> 16) & 0x8000u;
    const uint magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return sign | 0x7e00u;   // nan
    if (magnitude >= 0x477ff000u) return sign | 0x7c00u;  // rounds to more than 65504, which is infinite
    if (magnitude >= 0x38800000u) {
        // A carry out of the mantissa increments the exponent, as it must.
        return sign | ((magnitude + 0xfffu + ((magnitude >> 13) & 1u) - 0x38000000u) >> 13);
    }
    // A subnormal, less than 2^-14: a multiple of 2^-24.
    const uint exponent = magnitude >> 23;
    if (exponent < 102u) return sign;
    const uint mantissa = (magnitude & 0x7fffffu) | 0x800000u;
    const uint shift = 126u - exponent;
    const uint whole = mantissa >> shift;
    const uint rest = mantissa & ((1u << shift) - 1u);
    const uint half_unit = 1u << (shift - 1u);
    return sign | (whole + (rest > half_unit || rest == half_unit && (whole & 1u) != 0u ? 1u : 0u));
}
#elif BFLOAT16
float float_of(uint bits) {
    return uintBitsToFloat(bits << 16);
}
#else
float float_of(uint bits) {
    const uint sign = (bits & 0x8000u) << 16;
    const uint magnitude = bits & 0x7fffu;
    if (magnitude >= 0x7c00u) return uintBitsToFloat(sign | 0x7f800000u | (magnitude & 0x3ffu) << 13);
    if (magnitude >= 0x400u) return uintBitsToFloat(sign | ((magnitude << 13) + 0x38000000u));
    return uintBitsToFloat(sign | floatBitsToUint(float(magnitude) * 5.9604644775390625e-8));  // 2^-24
}
#endif

void main() {
    const uint step = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
#if PACK
    for (uint i = gl_GlobalInvocationID.x; i < (p.n + 1) / 2; i += step) {
        const uint index = 2 * i;
        const uint low = half_of(x[p.x_offset + index]);
        const uint high = index + 1 < p.n ? half_of(x[p.x_offset + index + 1]) : 0;
        y[i] = low | high << 16;
    }
#else
    for (uint i = gl_GlobalInvocationID.x; i < p.n; i += step) {
        const uint word = x[p.x_offset + i];
        y[i] = vec2(float_of(word & 0xffffu), float_of(word >> 16));
    }
#endif
}
