// The inverse of the error function, after Giles, Approximating the erfinv function (GPU Computing Gems, 2011).
#ifndef INVERSE_ERROR_FUNCTION_GLSL
#define INVERSE_ERROR_FUNCTION_GLSL
#include "logarithm.glsl"
#include "special.glsl"

float erfinvf(float x) {
    const float magnitude = abs(x);
    if (is_nan(x) || magnitude > 1.0) return not_a_number();
    if (magnitude == 1.0) return copy_sign(infinity(), x);
    float w = -(log1pf(-magnitude) + log1pf(magnitude));
    float y;
    if (w < 5.0) {
        w -= 2.5;
        y = 2.81022636e-8;
        y = y * w + 3.43273939e-7;
        y = y * w - 3.5233877e-6;
        y = y * w - 4.39150654e-6;
        y = y * w + 2.1858087e-4;
        y = y * w - 1.25372503e-3;
        y = y * w - 4.17768164e-3;
        y = y * w + 2.46640727e-1;
        y = y * w + 1.50140941;
    } else {
        w = sqrt(w) - 3.0;
        y = -2.00214257e-4;
        y = y * w + 1.00950558e-4;
        y = y * w + 1.34934322e-3;
        y = y * w - 3.67342844e-3;
        y = y * w + 5.73950773e-3;
        y = y * w - 7.6224613e-3;
        y = y * w + 9.43887047e-3;
        y = y * w + 1.00167406;
        y = y * w + 2.83297682;
    }
    return y * x;
}
#endif
