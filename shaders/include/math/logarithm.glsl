// Logarithms, accurate to about 1 ulp; Vulkan allows log an absolute error of 2^-21 between 0.5 and 2. Polynomial and
// split constants: logf.c, log2f.c and log10f.c of the Cephes library (Moshier, 1989).
#ifndef LOGARITHM_GLSL
#define LOGARITHM_GLSL
#include "special.glsl"

// Returns m with x = (1 + m) * 2^e and 1 + m between sqrt(1/2) and sqrt(2), for x > 0. Subnormal numbers are split
// as integers, because some devices replace them by 0.
float split_exponent(float x, out int e) {
    uint bits = floatBitsToUint(x);
    e = 0;
    if (bits < 0x00800000u) {
        const int shift = 23 - findMSB(bits);
        bits = (bits << shift) & 0x007fffffu;
        e = -shift - 126;
    } else {
        e = int(bits >> 23) - 127;
        bits &= 0x007fffffu;
    }
    float m = uintBitsToFloat(bits | 0x3f800000u);
    if (m > 1.41421356) {
        m *= 0.5;
        e += 1;
    }
    return m - 1.0;
}

// log(1 + m) - m for m from sqrt(1/2) - 1 to sqrt(2) - 1.
float log1p_rest(float m) {
    const float z = m * m;
    float y = 7.0376836292e-2;
    y = y * m - 1.1514610310e-1;
    y = y * m + 1.1676998740e-1;
    y = y * m - 1.2420140846e-1;
    y = y * m + 1.4249322787e-1;
    y = y * m - 1.6668057665e-1;
    y = y * m + 2.0000714765e-1;
    y = y * m - 2.4999993993e-1;
    y = y * m + 3.3333331174e-1;
    return y * m * z - 0.5 * z;
}

// Whether x has no finite logarithm: nan, negative numbers, 0 and infinity.
bool log_is_special(float x) {
    const uint bits = floatBitsToUint(x);
    return bits - 1 >= INFINITY_BITS - 1;
}

float log_of_special(float x) {
    if (magnitude_bits(x) == 0) return -infinity();
    return is_nan(x) || floatBitsToUint(x) == INFINITY_BITS ? x : not_a_number();
}

float logf(float x) {
    if (log_is_special(x)) return log_of_special(x);
    int e;
    const float m = split_exponent(x, e);
    precise float y = log1p_rest(m) - 2.12194440e-4 * float(e);
    y = m + y;
    return y + 0.693359375 * float(e);
}

float log2f(float x) {
    if (log_is_special(x)) return log_of_special(x);
    int e;
    const float m = split_exponent(x, e);
    const float rest = log1p_rest(m);
    const float log2_e_minus_1 = 0.44269504088896340736;
    precise float y = rest * log2_e_minus_1;
    y = y + m * log2_e_minus_1;
    y = y + rest;
    y = y + m;
    return y + float(e);
}

float log10f(float x) {
    if (log_is_special(x)) return log_of_special(x);
    int e;
    const float m = split_exponent(x, e);
    const float rest = log1p_rest(m);
    precise float y = (m + rest) * 7.00731903251827651129e-4;
    y = y + rest * 4.3359375e-1;
    y = y + m * 4.3359375e-1;
    y = y + float(e) * 2.48745663981195213739e-4;
    return y + float(e) * 3.0078125e-1;
}

float log1pf(float x) {
    if (is_nan(x) || x == 0.0) return x;
    if (x > -0.2928 && x < 0.4142) return x + log1p_rest(x);
    return logf(1.0 + x);
}
#endif
