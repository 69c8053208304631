// Arithmetic of 64-bit integers, given as low and high word; sums and products wrap around as NumPy's do.
#ifndef INT64_GLSL
#define INT64_GLSL
#include "special.glsl"

ivec2 widened(int number) {
    return ivec2(number, number >> 31);
}

bool is_true(ivec2 a) {
    return (a.x | a.y) != 0;
}

ivec2 plus(ivec2 a, ivec2 b) {
    uint carry;
    const uint low = uaddCarry(uint(a.x), uint(b.x), carry);
    return ivec2(int(low), a.y + b.y + int(carry));
}

ivec2 opposite(ivec2 a) {
    return plus(~a, ivec2(1, 0));
}

ivec2 minus(ivec2 a, ivec2 b) {
    return plus(a, opposite(b));
}

ivec2 times(ivec2 a, ivec2 b) {
    uint high, low;
    umulExtended(uint(a.x), uint(b.x), high, low);
    return ivec2(int(low), int(high) + a.x * b.y + a.y * b.x);
}

ivec2 magnitude(ivec2 a) {
    return a.y < 0 ? opposite(a) : a;
}

ivec2 signum(ivec2 a) {
    return a.y < 0 ? ivec2(-1) : ivec2(is_true(a) ? 1 : 0, 0);
}

ivec2 larger(ivec2 a, ivec2 b) {
    return less(a, b) ? b : a;
}

ivec2 smaller(ivec2 a, ivec2 b) {
    return less(b, a) ? b : a;
}

// The quotient of the magnitudes of two numbers, and the rest; 0 and 0 for a division by 0.
ivec2 divided_magnitudes(ivec2 a, ivec2 b, out ivec2 rest) {
    const ivec2 dividend = magnitude(a);
    const ivec2 divisor = magnitude(b);
    rest = ivec2(0);
    if (!is_true(divisor)) return ivec2(0);
    if (dividend.y == 0 && divisor.y == 0) {
        rest = ivec2(int(uint(dividend.x) % uint(divisor.x)), 0);
        return ivec2(int(uint(dividend.x) / uint(divisor.x)), 0);
    }
    ivec2 quotient = ivec2(0);
    for (int bit = 63; bit >= 0; --bit) {
        const int word = bit >= 32 ? dividend.y : dividend.x;
        const bool overflows = rest.y < 0;
        rest = ivec2((rest.x << 1) | ((word >> (bit & 31)) & 1), (rest.y << 1) | int(uint(rest.x) >> 31));
        const bool is_less = uint(rest.y) < uint(divisor.y) || (rest.y == divisor.y && uint(rest.x) < uint(divisor.x));
        if (overflows || !is_less) {
            rest = minus(rest, divisor);
            if (bit >= 32) quotient.y |= 1 << (bit - 32);
            else quotient.x |= 1 << bit;
        }
    }
    return quotient;
}

ivec2 fmodf(ivec2 a, ivec2 b) {
    ivec2 rest;
    divided_magnitudes(a, b, rest);
    return a.y < 0 ? opposite(rest) : rest;
}

ivec2 remainderf(ivec2 a, ivec2 b) {
    const ivec2 rest = fmodf(a, b);
    return is_true(rest) && (rest.y < 0) != (b.y < 0) ? plus(rest, b) : rest;
}

ivec2 floor_dividef(ivec2 a, ivec2 b) {
    ivec2 rest;
    const ivec2 quotient = divided_magnitudes(a, b, rest);
    if ((a.y < 0) == (b.y < 0)) return quotient;
    return opposite(is_true(rest) ? plus(quotient, ivec2(1, 0)) : quotient);
}

ivec2 powf(ivec2 base, ivec2 exponent) {
    if (exponent.y < 0) {
        const bool is_unit = magnitude(base) == ivec2(1, 0);
        return !is_unit ? ivec2(0) : (exponent.x & 1) == 0 ? ivec2(1, 0) : base;
    }
    ivec2 result = ivec2(1, 0);
    while (is_true(exponent)) {
        if ((exponent.x & 1) != 0) result = times(result, base);
        base = times(base, base);
        exponent = ivec2(int((uint(exponent.x) >> 1) | (uint(exponent.y) << 31)), int(uint(exponent.y) >> 1));
    }
    return result;
}
#endif
