#version 450
// Conversion between floats of 16 or 8 bits, BITS of them, two or four per word, and float32. PACK: float32 to fewer
// bits, rounding to nearest, ties to even, which packHalf2x16 does on some drivers only. It computes with integers and
// uses no type of 16 or 8 bits, so that every device can run it, and gives the same bits.
// A format is MANTISSA, its bits, BIAS, that of the exponent, SPECIAL, the first magnitude that is no number, infinity or a
// nan, WIDE_SPECIAL, which is the same in float32, LARGEST, the magnitude of
// what is beyond the range, and QUIET_NAN. bfloat16 has float32's exponent, so that its subnormal
// numbers are no others.
layout(local_size_x = 128) in;
#if PACK
layout(binding = 0) readonly buffer X { float x[]; };
layout(binding = 1) writeonly buffer Y { uint y[]; };
#else
layout(binding = 0) readonly buffer X { uint x[]; };
layout(binding = 1) writeonly buffer Y { float y[]; };
#endif
layout(push_constant) uniform Push {
    uint n, x_offset;  // in elements (PACK) or words
} p;

const uint PER_WORD = 32u / BITS;
const uint SIGN = 1u << (BITS - 1u);
const uint DROPPED = 23u - MANTISSA;                // bits of float32's mantissa that the format does not have
const uint REBIAS = (127u - BIAS) << 23;            // between the exponents of both
const uint NORMAL = (128u - BIAS) << 23;            // the smallest normal number, as float32
const uint SMALLEST_EXPONENT = 128u - BIAS - MANTISSA;  // of float32, of the smallest number of all

#if PACK
uint short_of(float value) {
    const uint bits = floatBitsToUint(value);
    const uint sign = (bits >> (32u - BITS)) & SIGN;
    const uint magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return sign | QUIET_NAN;
    if (REBIAS == 0u || magnitude >= NORMAL) {
        // A carry out of the mantissa increments the exponent, as it must.
        const uint even = (magnitude >> DROPPED) & 1u;
        return sign | min((magnitude + (1u << (DROPPED - 1u)) - 1u + even - REBIAS) >> DROPPED, LARGEST);
    }
    // A subnormal: a multiple of the smallest number.
    const uint exponent = magnitude >> 23;
    if (exponent + 1u < SMALLEST_EXPONENT) return sign;
    const uint mantissa = (magnitude & 0x7fffffu) | 0x800000u;
    const uint shift = 23u + SMALLEST_EXPONENT - exponent;
    const uint whole = mantissa >> shift;
    const uint rest = mantissa & ((1u << shift) - 1u);
    const uint half_unit = 1u << (shift - 1u);
    return sign | (whole + (rest > half_unit || rest == half_unit && (whole & 1u) != 0u ? 1u : 0u));
}
#else
float float_of(uint bits) {
    const uint sign = (bits & SIGN) << (32u - BITS);
    const uint magnitude = bits & (SIGN - 1u);
    if (magnitude >= SPECIAL) return uintBitsToFloat(sign | WIDE_SPECIAL | (magnitude - SPECIAL) << DROPPED);
    if (REBIAS == 0u || magnitude >> MANTISSA != 0u) return uintBitsToFloat(sign | ((magnitude << DROPPED) + REBIAS));
    return uintBitsToFloat(sign | floatBitsToUint(float(magnitude) * uintBitsToFloat(SMALLEST_EXPONENT << 23)));
}
#endif

void main() {
    const uint step = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
#if PACK
    for (uint i = gl_GlobalInvocationID.x; i < (p.n + PER_WORD - 1u) / PER_WORD; i += step) {
        uint word = 0u;
        for (uint j = 0u; j < PER_WORD && i * PER_WORD + j < p.n; j++) {
            word |= short_of(x[p.x_offset + i * PER_WORD + j]) << (j * BITS);
        }
        y[i] = word;
    }
#else
    for (uint i = gl_GlobalInvocationID.x; i < p.n; i += step) {
        const uint word = x[p.x_offset + i];
        for (uint j = 0u; j < PER_WORD; j++) {
            y[i * PER_WORD + j] = float_of(word >> (j * BITS) & ((SIGN << 1) - 1u));
        }
    }
#endif
}
