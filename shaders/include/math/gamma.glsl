// The logarithm of the gamma function, its derivatives, and the zeta function of Hurwitz.
#ifndef GAMMA_GLSL
#define GAMMA_GLSL
#include "exponential.glsl"
#include "logarithm.glsl"
#include "power.glsl"
#include "special.glsl"
#include "trigonometry.glsl"

// log(gamma(2 + z)) for |z| <= 0.5, by its series; coefficient k is (zeta(k) - 1) / k.
float lgamma_near_2(float z) {
    float y = -2.039215754e-6;
    y = y * z + 4.374866790e-6;
    y = y * z - 9.439488275e-6;
    y = y * z + 2.050721278e-5;
    y = y * z - 4.492623674e-5;
    y = y * z + 9.945751278e-5;
    y = y * z - 2.231547585e-4;
    y = y * z + 5.096695247e-4;
    y = y * z - 1.192753912e-3;
    y = y * z + 2.890510331e-3;
    y = y * z - 7.385551029e-3;
    y = y * z + 2.058080843e-2;
    y = y * z - 6.735230105e-2;
    y = y * z + 3.224670334e-1;
    y = y * z + 4.227843351e-1;
    return y * z;
}

// For x > 0.
float lgamma_positive(float x) {
    if (x >= 8.0) {  // Stirling's series
        if (is_inf(x) || x > 1e30) return x > 4.08e36 ? infinity() : x * (logf(x) - 1.0);
        const float z = 1.0 / (x * x);
        const float rest = (0.0833333333 - z * (0.00277777778 - z * 0.000793650794)) / x;
        return (x - 0.5) * (logf(x) - 1.0) + (0.418938533 + rest);
    }
    if (x < 0.5) return lgamma_near_2(x) - log1pf(x) - logf(x);
    if (x < 1.5) return lgamma_near_2(x - 1.0) - log1pf(x - 1.0);
    float product = 1.0;
    while (x > 2.5) {
        x -= 1.0;
        product *= x;
    }
    return lgamma_near_2(x - 2.0) + logf(product);
}

// sin(pi x) and cos(pi x), exact where they are 0, 1 or -1.
vec2 sin_cos_pi(float x) {
    const float rest = x - 2.0 * roundEven(0.5 * x);  // from -1 to 1
    const float nearest = roundEven(2.0 * rest);
    const float angle = (rest - 0.5 * nearest) * 3.14159265;
    const float s = sinf(angle), c = cosf(angle);
    const int quarter = int(nearest) & 3;
    if (quarter == 0) return vec2(s, c);
    if (quarter == 1) return vec2(c, -s);
    return quarter == 2 ? vec2(-s, -c) : vec2(-c, s);
}

float lgammaf(float x) {
    if (is_nan(x)) return x;
    if (is_inf(x)) return infinity();
    if (x > 0.0) return lgamma_positive(x);
    if (x == floor(x)) return infinity();
    if (x > -0.5) return lgamma_positive(1.0 + x) - logf(-x);
    return logf(3.14159265 / abs(sin_cos_pi(x).x)) - lgamma_positive(1.0 - x);
}

// log(gamma(x))' for x > 0.
float digamma_positive(float x) {
    float sum = 0.0;
    while (x < 10.0) {
        sum -= 1.0 / x;
        x += 1.0;
    }
    const float z = 1.0 / (x * x);
    const float series = z * (0.0833333333 - z * (0.00833333333 - z * (0.00396825397 - z * 0.00416666667)));
    return sum + (logf(x) - 0.5 / x - series);
}

float digammaf(float x) {
    if (is_nan(x)) return x;
    if (x == 0.0) return copy_sign(infinity(), uintBitsToFloat(floatBitsToUint(x) ^ 0x80000000u));
    if (is_inf(x)) return x > 0.0 ? x : not_a_number();
    if (x > 0.0) return digamma_positive(x);
    if (x == floor(x)) return not_a_number();
    const vec2 s = sin_cos_pi(x);
    return digamma_positive(1.0 - x) - 3.14159265 * s.y / s.x;
}

const float ZETA_FACTORS[7] =
    float[7](0.0833333333, -0.00138888889, 3.30687831e-5, -8.26719577e-7, 2.08767570e-8, -5.28419014e-10, 1.33825365e-11);
const int ZETA_TERMS = 10000;

// The sum of (q + k)^-s over k >= 0: some terms one by one, the others by the formula of Euler and Maclaurin.
float zetaf(float s, float q) {
    if (!is_finite(s) || is_nan(q) || s < 1.0) return not_a_number();
    if (s == 1.0) return infinity();
    if (q <= 0.0) {
        if (q == floor(q)) return infinity();
        if (s != floor(s)) return not_a_number();
        if (q < -float(ZETA_TERMS)) return not_a_number();
    }
    float sum = 0.0;
    float at = q;
    for (int k = 0; k < 9 || at <= 9.0; ++k) {
        const float term = powf(at, -s);
        sum += term;
        at += 1.0;
        if (at > 1.0 && abs(term) <= 1e-9 * abs(sum)) return sum;
    }
    float power = powf(at, -s);
    sum += power * at / (s - 1.0) + 0.5 * power;
    float factor = s;
    for (int k = 0; k < 7; ++k) {
        power /= at;
        const float term = factor * power * ZETA_FACTORS[k];
        sum += term;
        if (abs(term) <= 1e-9 * abs(sum)) break;
        factor *= (s + float(2 * k + 1)) * (s + float(2 * k + 2));
        power /= at;
    }
    return sum;
}
#endif
