// Exponential and hyperbolic functions, accurate to about 1 ulp. Vulkan allows errors of 3 + 2|x| ulps for exp, and any
// result of tanh where exp overflows. Polynomials: expf.c, exp2f.c, sinhf.c and tanhf.c of the Cephes library (Moshier,
// Methods and Programs for Mathematical Functions, 1989).
#ifndef EXPONENTIAL_GLSL
#define EXPONENTIAL_GLSL
#include "special.glsl"

// x * 2^n in two steps, neither of which overflows unless the result does.
float scale_by_power_of_2(float x, int n) {
    const int first = n >> 1;
    return x * intBitsToFloat((first + 127) << 23) * intBitsToFloat((n - first + 127) << 23);
}

// exp(x) - 1 for |x| <= log(2) / 2.
float small_expm1(float x) {
    float y = 1.9875691500e-4;
    y = y * x + 1.3981999507e-3;
    y = y * x + 8.3334519073e-3;
    y = y * x + 4.1665795894e-2;
    y = y * x + 1.6666665459e-1;
    y = y * x + 5.0000001201e-1;
    return y * x * x + x;
}

// Returns r with x = n log(2) + r, for |x| < 150. The first product is exact.
float reduce_by_log2(float x, out int n) {
    const float whole = floor(x * 1.44269504 + 0.5);
    n = int(whole);
    precise float rest = x - whole * 0.693359375;
    rest = rest + whole * 2.12194440e-4;
    return rest;
}

// exp(x) * 2^shift, without intermediate overflow.
float scaled_exp(float x, int shift) {
    if (is_nan(x)) return x;
    if (x > 100.0) return infinity();
    if (x < -110.0) return 0.0;
    int n;
    const float rest = reduce_by_log2(x, n);
    return scale_by_power_of_2(small_expm1(rest) + 1.0, n + shift);
}

float expf(float x) {
    return scaled_exp(x, 0);
}

float exp2f(float x) {
    if (is_nan(x)) return x;
    if (x > 130.0) return infinity();
    if (x < -160.0) return 0.0;
    const float whole = floor(x + 0.5);
    const float rest = x - whole;
    float y = 1.535336188319500e-4;
    y = y * rest + 1.339887440266574e-3;
    y = y * rest + 9.618437357674640e-3;
    y = y * rest + 5.550332471162809e-2;
    y = y * rest + 2.402264791363012e-1;
    y = y * rest + 6.931472028550421e-1;
    return scale_by_power_of_2(y * rest + 1.0, int(whole));
}

float expm1f(float x) {
    if (is_nan(x) || x == 0.0) return x;
    if (x > 60.0) return expf(x);
    if (x < -20.0) return -1.0;
    int n;
    const float rest = reduce_by_log2(x, n);
    const float power = scale_by_power_of_2(1.0, n);
    return n == 0 ? small_expm1(x) : power * small_expm1(rest) + (power - 1.0);
}

float sinhf(float x) {
    const float magnitude = abs(x);
    if (magnitude < 1.0) {
        const float z = x * x;
        return ((2.03721912945e-4 * z + 8.33028376239e-3) * z + 1.66667160211e-1) * z * x + x;
    }
    const float half_exp = scaled_exp(magnitude, -1);
    return copy_sign(half_exp > 1e9 ? half_exp : half_exp - 0.25 / half_exp, x);
}

float coshf(float x) {
    const float half_exp = scaled_exp(abs(x), -1);
    return half_exp > 1e9 ? half_exp : half_exp + 0.25 / half_exp;
}

float tanhf(float x) {
    if (is_nan(x)) return x;
    const float magnitude = abs(x);
    if (magnitude > 10.0) return copy_sign(1.0, x);
    if (magnitude >= 0.625) return copy_sign(1.0 - 2.0 / (expf(2.0 * magnitude) + 1.0), x);
    const float z = x * x;
    float y = -5.70498872745e-3;
    y = y * z + 2.06390887954e-2;
    y = y * z - 5.37397155531e-2;
    y = y * z + 1.33314422036e-1;
    y = y * z - 3.33332819422e-1;
    return y * z * x + x;
}

// 1 / (1 + exp(-x)), computed so that the divisor stays between 1 and 2.
float sigmoidf(float x) {
    const float power = expf(-abs(x));
    return (x < 0.0 ? power : 1.0) / (1.0 + power);
}
#endif
