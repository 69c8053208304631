// Exact remainders of divisions; GLSL's mod rounds the quotient.
#ifndef REMAINDER_GLSL
#define REMAINDER_GLSL
#include "special.glsl"

// The 24-bit significand of a float that is not 0, and the exponent of its last bit.
uint significand(float x, out int exponent) {
    const uint bits = magnitude_bits(x);
    exponent = max(int(bits >> 23), 1) - 150;
    return bits < 0x00800000u ? bits : (bits & 0x007fffffu) | 0x00800000u;
}

// a - b * trunc(a / b), with the sign of a.
float fmodf(float a, float b) {
    if (is_nan(b) || !is_finite(a) || magnitude_bits(b) == 0) return not_a_number();
    if (magnitude_bits(a) < magnitude_bits(b)) return a;
    int exponent, lowest;
    uint rest = significand(a, exponent);
    const uint divisor = significand(b, lowest);
    rest %= divisor;
    while (exponent > lowest && rest != 0) {  // shifting by 8 bits at a time cannot overflow a word
        const int bits = min(exponent - lowest, 8);
        rest = (rest << bits) % divisor;
        exponent -= bits;
    }
    if (rest == 0) return copy_sign(0.0, a);
    int shift = 23 - findMSB(rest);
    shift = min(shift, lowest + 149);  // stop at the smallest exponent
    rest <<= shift;
    lowest -= shift;
    const uint result_bits = rest < 0x00800000u ? rest : (rest & 0x007fffffu) | (uint(lowest + 150) << 23);
    return copy_sign(uintBitsToFloat(result_bits), a);
}

// The remainder with the sign of b.
float remainderf(float a, float b) {
    const float rest = fmodf(a, b);
    return magnitude_bits(rest) != 0 && !is_nan(rest) && sign_bit(rest) != sign_bit(b) ? rest + b : rest;
}

// floor(a / b) of the exact quotient, even where the rounded quotient is an integer.
float floor_dividef(float a, float b) {
    if (magnitude_bits(b) == 0) return a / b;
    const float rest = fmodf(a, b);
    if (is_nan(rest)) return rest;
    float quotient = is_inf(b) ? 0.0 : (a - rest) / b;
    if (magnitude_bits(rest) != 0 && sign_bit(rest) != sign_bit(b)) quotient -= 1.0;
    if (quotient == 0.0) return copy_sign(0.0, uintBitsToFloat(floatBitsToUint(a) ^ floatBitsToUint(b)));
    const float rounded = floor(quotient);
    return quotient - rounded > 0.5 ? rounded + 1.0 : rounded;
}

// The same functions of ints. A division by 0 gives 0, and a division by -1 never overflows.
int truncated_quotient(int a, int b) {
    return b == 0 ? 0 : b == -1 ? -a : a / b;
}

int fmodf(int a, int b) {
    return b == 0 ? 0 : a - truncated_quotient(a, b) * b;
}

int remainderf(int a, int b) {
    const int rest = fmodf(a, b);
    return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

int floor_dividef(int a, int b) {
    const int rest = fmodf(a, b);
    return truncated_quotient(a, b) - (rest != 0 && (rest < 0) != (b < 0) ? 1 : 0);
}
#endif
