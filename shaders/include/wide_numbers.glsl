// Conversions between 64-bit integers, float32 and float64 by their bits; those of 64 bits are low and high word.
// Integers are rounded to floats, and float64 to float32, to nearest, ties to even.
#ifndef WIDE_NUMBERS_GLSL
#define WIDE_NUMBERS_GLSL

uvec2 shifted_left(uvec2 a, uint count) {
    if (count == 0) return a;
    if (count >= 32) return uvec2(0u, count < 64 ? a.x << (count - 32) : 0u);
    return uvec2(a.x << count, a.y << count | a.x >> (32 - count));
}

uvec2 shifted_right(uvec2 a, uint count) {
    if (count == 0) return a;
    if (count >= 32) return uvec2(count < 64 ? a.y >> (count - 32) : 0u, 0u);
    return uvec2(a.x >> count | a.y << (32 - count), a.y >> count);
}

uvec2 added(uvec2 a, uvec2 b) {
    uint carry;
    const uint low = uaddCarry(a.x, b.x, carry);
    return uvec2(low, a.y + b.y + carry);
}

uvec2 negated(uvec2 a) {
    return added(~a, uvec2(1, 0));
}

// a >> count, rounded to nearest, ties to even; 0 < count < 64.
uvec2 rounded_right(uvec2 a, uint count) {
    const uvec2 quotient = shifted_right(a, count);
    const uvec2 rest = shifted_left(a, 64 - count);
    const bool above = rest.y > 0x80000000u || (rest.y == 0x80000000u && rest.x != 0u);
    const bool tie = rest.y == 0x80000000u && rest.x == 0u;
    return above || (tie && (quotient.x & 1u) != 0u) ? added(quotient, uvec2(1, 0)) : quotient;
}

uint highest_bit(uvec2 a) {
    return a.y != 0u ? 32u + uint(findMSB(a.y)) : uint(findMSB(a.x));
}

uint float32_of_int64(uvec2 number) {
    const bool negative = int(number.y) < 0;
    const uvec2 magnitude = negative ? negated(number) : number;
    if ((magnitude.x | magnitude.y) == 0u) return 0u;
    const uint top = highest_bit(magnitude);
    const uvec2 digits = top <= 23u ? shifted_left(magnitude, 23u - top) : rounded_right(magnitude, top - 23u);
    // The leading digit adds 1 to the exponent, and so does a carry.
    return (negative ? 0x80000000u : 0u) + (126u + top << 23) + digits.x;
}

uvec2 float64_of_int64(uvec2 number) {
    const bool negative = int(number.y) < 0;
    const uvec2 magnitude = negative ? negated(number) : number;
    if ((magnitude.x | magnitude.y) == 0u) return uvec2(0u);
    const uint top = highest_bit(magnitude);
    const uvec2 digits = top <= 52u ? shifted_left(magnitude, 52u - top) : rounded_right(magnitude, top - 52u);
    return uvec2(digits.x, (negative ? 0x80000000u : 0u) + (1022u + top << 20) + digits.y);
}

uvec2 float64_of_float32(uint bits) {
    const uint sign = bits & 0x80000000u;
    const uint exponent = bits >> 23 & 0xffu;
    uint digits = bits & 0x7fffffu;
    uint wide = exponent == 0xffu ? 0x7ffu : exponent + 896u;
    if (exponent == 0u) {
        if (digits == 0u) return uvec2(0u, sign);
        const uint top = uint(findMSB(digits));
        digits = digits << (23u - top) & 0x7fffffu;
        wide = 874u + top;
    }
    return uvec2(digits << 29, sign | wide << 20 | digits >> 3);
}

uint float32_of_float64(uvec2 bits) {
    const uint sign = bits.y & 0x80000000u;
    const int exponent = int(bits.y >> 20 & 0x7ffu) - 1023;
    const uvec2 fraction = uvec2(bits.x, bits.y & 0xfffffu);
    if (exponent == 1024) {
        return sign | ((fraction.x | fraction.y) != 0u ? 0x7fc00000u | fraction.y << 3 | fraction.x >> 29 : 0x7f800000u);
    }
    if (exponent > 127) return sign | 0x7f800000u;
    if (exponent < -150) return sign;
    const uvec2 digits = uvec2(fraction.x, fraction.y | 0x100000u);
    if (exponent < -126) return sign | rounded_right(digits, uint(29 - 126 - exponent)).x;
    return sign | (uint(exponent + 126) << 23) + rounded_right(digits, 29u).x;
}

// The fraction is dropped; nan and what does not fit give the smallest integer, as on x86.
uvec2 int64_of_float64(uvec2 bits) {
    const int exponent = int(bits.y >> 20 & 0x7ffu) - 1023;
    if (exponent < 0) return uvec2(0u);
    if (exponent >= 63) return uvec2(0u, 0x80000000u);
    const uvec2 digits = uvec2(bits.x, bits.y & 0xfffffu | 0x100000u);
    const uvec2 magnitude =
        exponent <= 52 ? shifted_right(digits, uint(52 - exponent)) : shifted_left(digits, uint(exponent - 52));
    return int(bits.y) < 0 ? negated(magnitude) : magnitude;
}
#endif
