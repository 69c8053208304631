// x to the power of y, with the special cases of IEEE 754. GLSL's pow is undefined for x < 0 and loses a bit of
// accuracy for each doubling of y log(x); here the logarithm is the sum of two floats.
#ifndef POWER_GLSL
#define POWER_GLSL
#include "exponential.glsl"
#include "logarithm.glsl"

// x rounded to its leading 12 bits; products of two such numbers are exact.
float leading_bits(float x) {
    return uintBitsToFloat(floatBitsToUint(x) & 0xfffff000u);
}

// The rounding error a * b - product (Dekker, A floating-point technique for extending the available precision, 1971).
float product_error(float a, float b, float product) {
    const float a_high = leading_bits(a);
    const float b_high = leading_bits(b);
    precise float a_low = a - a_high;
    precise float b_low = b - b_high;
    precise float error = a_high * b_high - product;
    error = error + a_high * b_low;
    error = error + a_low * b_high;
    error = error + a_low * b_low;
    return error;
}

// log2(x) for 0 < x < inf in double-float precision, as result + rest.
float extended_log2(float x, out float rest) {
    int e;
    const float m = split_exponent(x, e);
    if (m == 0.0) {
        rest = 0.0;
        return float(e);
    }
    // log(1 + m) = 2 atanh(s) with s = m / (m + 2), here s + s_rest.
    precise float divisor = m + 2.0;
    precise float divisor_rest = m - (divisor - 2.0);
    precise float s = m / divisor;
    precise float product = s * divisor;
    precise float remainder = m - product;
    remainder = remainder - product_error(s, divisor, product);
    remainder = remainder - s * divisor_rest;
    precise float s_rest = remainder / divisor;
    const float z = s * s;
    // The series of atanh after its first term.
    const float series = s * z * (1.0 / 3.0 + z * (1.0 / 5.0 + z * (1.0 / 7.0 + z * (1.0 / 9.0 + z / 11.0))));
    const float factor = 2.88539004;  // 2 / log(2) = factor + factor_rest
    const float factor_rest = 3.8519260e-8;
    precise float high = s * factor;
    precise float low = product_error(s, factor, high);
    low = low + s * factor_rest;
    low = low + (s_rest + series) * factor;
    precise float sum = float(e) + high;
    precise float integer_part = sum - float(e);
    rest = (high - integer_part) + low;
    if (e == 0) {
        sum = high;
        rest = low;
    }
    precise float result = sum + rest;
    precise float remaining = rest - (result - sum);
    rest = remaining;
    return result;
}

float powf(float x, float y) {
    if (y == 0.0 || x == 1.0) return 1.0;
    if (is_nan(x) || is_nan(y)) return not_a_number();
    const float magnitude = abs(x);
    if (is_inf(y)) {
        if (magnitude == 1.0) return 1.0;
        return (magnitude > 1.0) == (y > 0.0) ? infinity() : 0.0;
    }
    const bool is_integer = abs(y) >= 16777216.0 || floor(y) == y;
    const bool is_odd = is_integer && abs(y) < 16777216.0 && (int(y) & 1) != 0;
    const float sign = is_odd && sign_bit(x) ? -1.0 : 1.0;
    if (magnitude_bits(x) == 0) return y > 0.0 ? 0.0 * sign : sign * infinity();
    if (is_inf(x)) return y > 0.0 ? sign * infinity() : 0.0 * sign;
    if (sign_bit(x) && !is_integer) return not_a_number();
    if (abs(y) > 1e12) {
        if (magnitude == 1.0) return sign;
        return (magnitude > 1.0) == (y > 0.0) ? sign * infinity() : 0.0 * sign;
    }
    float low;
    const float high = extended_log2(magnitude, low);
    precise float product = high * y;
    if (product > 140.0) return sign * infinity();
    if (product < -160.0) return 0.0 * sign;
    precise float rest = product_error(high, y, product);
    rest = rest + low * y;
    const float n = floor(product + 0.5);
    precise float fraction = product - n;
    fraction = fraction + rest;
    return sign * scale_by_power_of_2(small_expm1(fraction * 0.69314718056) + 1.0, int(n));
}

// Powers of integers wrap around; a negative exponent gives the whole part of the quotient, 0 for a division by 0.
int powf(int base, int exponent) {
    if (exponent < 0) return abs(base) != 1 ? 0 : (exponent & 1) == 0 ? 1 : base;
    int result = 1;
    for (; exponent != 0; exponent >>= 1, base *= base) {
        if ((exponent & 1) != 0) result *= base;
    }
    return result;
}
#endif
