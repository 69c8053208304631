#version 450
// Between float16, two to a word, and float32. PACK: rounds to the nearest, of two to the even one, as
// packHalf2x16 does on some drivers only. No 16-bit type is needed, so every device can do this.
layout(local_size_x = 128) in;
#if PACK
layout(binding = 0) readonly buffer X { float x[]; };
layout(binding = 1) writeonly buffer Y { uint y[]; };
#else
layout(binding = 0) readonly buffer X { uint x[]; };
layout(binding = 1) writeonly buffer Y { vec2 y[]; };
#endif
layout(push_constant) uniform Push {
    uint n, x_offset;  // elements, and where the first lies; or words
} p;

#if PACK
uint half_of(float value) {
    const uint bits = floatBitsToUint(value);
    const uint sign = (bits >> 16) & 0x8000u;
    const uint size = bits & 0x7fffffffu;
    if (size > 0x7f800000u) return sign | 0x7e00u;   // nan
    if (size >= 0x477ff000u) return sign | 0x7c00u;  // what rounds to more than 65504 is infinite
    if (size >= 0x38800000u) {
        // Carries move into the exponent as they should.
        return sign | ((size + 0xfffu + ((size >> 13) & 1u) - 0x38000000u) >> 13);
    }
    // Less than 2^-14: how many times 2^-24.
    const uint exponent = size >> 23;
    if (exponent < 102u) return sign;
    const uint mantissa = (size & 0x7fffffu) | 0x800000u;
    const uint shift = 126u - exponent;
    const uint whole = mantissa >> shift;
    const uint rest = mantissa & ((1u << shift) - 1u);
    const uint middle = 1u << (shift - 1u);
    return sign | (whole + (rest > middle || rest == middle && (whole & 1u) != 0u ? 1u : 0u));
}
#else
float float_of(uint bits) {
    const uint sign = (bits & 0x8000u) << 16;
    const uint size = bits & 0x7fffu;
    if (size >= 0x7c00u) return uintBitsToFloat(sign | 0x7f800000u | (size & 0x3ffu) << 13);
    if (size >= 0x400u) return uintBitsToFloat(sign | ((size << 13) + 0x38000000u));
    return uintBitsToFloat(sign | floatBitsToUint(float(size) * 5.9604644775390625e-8));  // 2^-24
}
#endif

void main() {
    const uint step = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
#if PACK
    for (uint i = gl_GlobalInvocationID.x; i < (p.n + 1) / 2; i += step) {
        const uint at = 2 * i;
        const uint low = half_of(x[p.x_offset + at]);
        const uint high = at + 1 < p.n ? half_of(x[p.x_offset + at + 1]) : 0;
        y[i] = low | high << 16;
    }
#else
    for (uint i = gl_GlobalInvocationID.x; i < p.n; i += step) {
        const uint word = x[p.x_offset + i];
        y[i] = vec2(float_of(word & 0xffffu), float_of(word >> 16));
    }
#endif
}
