// The error function and its complement, after ndtrf.c of the Cephes library (Moshier, 1989).
#ifndef ERROR_FUNCTION_GLSL
#define ERROR_FUNCTION_GLSL
#include "exponential.glsl"

// exp(x^2) (1 - erf(x)) for x >= 1.
float scaled_tail(float x) {
    const float z = 1.0 / (x * x);
    float y;
    if (x < 2.0) {
        y = 2.326819970068386e-2;
        y = y * z - 1.387039388740657e-1;
        y = y * z + 3.687424674597105e-1;
        y = y * z - 5.824733027278666e-1;
        y = y * z + 6.210004621745983e-1;
        y = y * z - 4.944515323274145e-1;
        y = y * z + 3.404879937665872e-1;
        y = y * z - 2.741127028184656e-1;
        y = y * z + 5.638259427386472e-1;
    } else {
        y = -1.047766399936249e1;
        y = y * z + 1.297719955372516e1;
        y = y * z - 7.495518717768503;
        y = y * z + 2.921019019210786;
        y = y * z - 1.015265279202700;
        y = y * z + 4.218463358204948e-1;
        y = y * z - 2.820767439740514e-1;
        y = y * z + 5.641895067754075e-1;
    }
    return y / x;
}

// exp(-x^2) as a product; the square of the leading bits of x is exact.
float exp_of_minus_square(float x) {
    const float lead = uintBitsToFloat(floatBitsToUint(x) & 0xfffff000u);
    precise float rest = (x - lead) * (x + lead);
    return expf(-lead * lead) * expf(-rest);
}

// 1 - erf(x) for x >= 1.
float erfc_tail(float x) {
    return x > 10.5 ? 0.0 : exp_of_minus_square(x) * scaled_tail(x);
}

// erf(x) for |x| < 1.
float small_erf(float x) {
    const float z = x * x;
    float y = 7.853861353153693e-5;
    y = y * z - 8.010193625184903e-4;
    y = y * z + 5.188327685732524e-3;
    y = y * z - 2.685381193529856e-2;
    y = y * z + 1.128358514861418e-1;
    y = y * z - 3.761262582423300e-1;
    y = y * z + 1.128379165726710;
    return y * x;
}

float erff(float x) {
    if (is_nan(x)) return x;
    const float magnitude = abs(x);
    return magnitude < 1.0 ? small_erf(x) : copy_sign(magnitude > 4.0 ? 1.0 : 1.0 - erfc_tail(magnitude), x);
}

float erfcf(float x) {
    if (is_nan(x)) return x;
    const float magnitude = abs(x);
    if (magnitude < 1.0) return 1.0 - small_erf(x);
    const float tail = erfc_tail(magnitude);
    return x < 0.0 ? 2.0 - tail : tail;
}

// exp(x^2) (1 - erf(x)).
float erfcxf(float x) {
    if (is_nan(x)) return x;
    if (x >= 1.0) return is_inf(x) ? 0.0 : scaled_tail(x);
    if (x < -9.5) return infinity();
    const float lead = uintBitsToFloat(floatBitsToUint(x) & 0xfffff000u);
    precise float rest = (x - lead) * (x + lead);
    const float factor = expf(lead * lead) * expf(rest);  // exp(x^2)
    return x > -1.0 ? factor * (1.0 - small_erf(x)) : 2.0 * factor - scaled_tail(-x);
}
#endif
