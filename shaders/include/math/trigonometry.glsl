// Trigonometric functions and their inverses, accurate to about 2 ulps for every float. Vulkan allows sin and cos an
// absolute error of 2^-11, and any error beyond pi. Polynomials: sinf.c, tanf.c, asinf.c and atanf.c of the Cephes
// library (Moshier, 1989). Argument reduction: Cody and Waite, Software Manual for the Elementary Functions (1980),
// chapter 8; for large arguments and near multiples of pi / 2, Payne and Hanek, Radian reduction for trigonometric
// functions, SIGNUM Newsletter 18 (1983).
#ifndef TRIGONOMETRY_GLSL
#define TRIGONOMETRY_GLSL
#include "special.glsl"

const float HALF_PI = 1.57079632679489662;
const float PI = 3.14159265358979324;

// Four consecutive words of the bits of 2 / pi, which start after 34 zeros. Not an array, because drivers fetch the
// elements of an array one by one.
uvec4 two_over_pi(uint word) {
    if (word == 0) return uvec4(0u, 0x28be60dbu, 0x9391054au, 0x7f09d5f4u);
    if (word == 1) return uvec4(0x28be60dbu, 0x9391054au, 0x7f09d5f4u, 0x7d4d3770u);
    if (word == 2) return uvec4(0x9391054au, 0x7f09d5f4u, 0x7d4d3770u, 0x36d8a566u);
    if (word == 3) return uvec4(0x7f09d5f4u, 0x7d4d3770u, 0x36d8a566u, 0x4f10e410u);
    return uvec4(0x7d4d3770u, 0x36d8a566u, 0x4f10e410u, 0u);
}

// pi / 2 as a sum. The first two terms have so few bits that their products with integers up to 2^13 are exact.
const float PART_1 = 1.5703125, PART_2 = 4.837512969970703125e-4, PART_3 = 7.54978995489188216e-8;

// Payne and Hanek's reduction: returns r with x = quadrant * pi / 2 + r, for any finite |x| > pi / 4.
float reduce_exactly(float x, out int quadrant) {
    // x, as an integer times a power of two, is multiplied by the part of 2 / pi that determines the quadrant and
    // the 62 bits after it.
    const uint bits = magnitude_bits(x);
    const uint significand = (bits << 8) | 0x80000000u;
    const uint exponent = (bits >> 23) - 126;
    const uvec4 words = two_over_pi(exponent >> 5);
    const uint shift = exponent & 31;
    uvec3 part = words.xyz;
    if (shift != 0) part = (part << shift) | (words.yzw >> (32 - shift));
    uint top, carried, unused, bottom;
    umulExtended(significand, part.z, carried, unused);
    umulExtended(significand, part.y, top, bottom);
    bottom += carried;
    top += bottom < carried ? 1u : 0u;
    top += significand * part.x;
    // Two bits of quadrant, then its fraction. From one half on, the next quadrant is the nearer one.
    quadrant = int(top >> 30);
    top &= 0x3fffffffu;
    const bool nearer_next = top >= 0x20000000u;
    if (nearer_next) {
        quadrant += 1;
        top = ~top & 0x3fffffffu;
        bottom = ~bottom;
    }
    // The leading 32 bits as a float.
    int zeros = 32;
    if (top != 0) {
        zeros = 31 - findMSB(top);
        if (zeros != 0) top = (top << zeros) | (bottom >> (32 - zeros));
    } else {
        top = bottom;
        const int more = 31 - findMSB(top);
        top <<= more;
        zeros += more;
    }
    const float fraction = float(top) * intBitsToFloat((127 - 30 - zeros) << 23);
    const float rest = fraction * HALF_PI;
    const bool negative = sign_bit(x);
    if (negative) quadrant = -quadrant;
    return negative != nearer_next ? -rest : rest;
}

// Returns r with x = quadrant * pi / 2 + r and |r| <= pi / 4, for finite x. Cody and Waite's reduction, where it is
// accurate.
float reduce_to_quadrant(float x, out int quadrant) {
    const float quadrants = roundEven(x * 0.636619772);
    precise float rest = x - quadrants * PART_1;
    rest = rest - quadrants * PART_2;
    rest = rest - quadrants * PART_3;
    quadrant = int(quadrants);
    const bool needs_exact = quadrants != 0.0 && (abs(x) > 8192.0 || abs(rest) < 0.001);
    if (needs_exact) rest = reduce_exactly(x, quadrant);
    return rest;
}

float small_sin(float x) {
    const float z = x * x;
    return ((-1.9515295891e-4 * z + 8.3321608736e-3) * z - 1.6666654611e-1) * z * x + x;
}

float small_cos(float x) {
    const float z = x * x;
    return ((2.443315711809948e-5 * z - 1.388731625493765e-3) * z + 4.166664568298827e-2) * z * z - 0.5 * z + 1.0;
}

// sin(x + shift * pi / 2).
float shifted_sin(float x, int shift) {
    if (!is_finite(x)) return not_a_number();
    int quadrant;
    const float rest = reduce_to_quadrant(x, quadrant);
    quadrant += shift;
    const float y = (quadrant & 1) == 0 ? small_sin(rest) : small_cos(rest);
    return (quadrant & 2) == 0 ? y : -y;
}

float sinf(float x) {
    return shifted_sin(x, 0);
}

float cosf(float x) {
    return shifted_sin(x, 1);
}

float tanf(float x) {
    if (!is_finite(x)) return not_a_number();
    int quadrant;
    const float rest = reduce_to_quadrant(x, quadrant);
    const float z = rest * rest;
    float y = 9.38540185543e-3;
    y = y * z + 3.11992232697e-3;
    y = y * z + 2.44301354525e-2;
    y = y * z + 5.34112807005e-2;
    y = y * z + 1.33387994085e-1;
    y = y * z + 3.33331568548e-1;
    y = y * z * rest + rest;
    return (quadrant & 1) == 0 ? y : -1.0 / y;
}

// asin(x) for |x| <= 0.5.
float small_asin(float x) {
    const float z = x * x;
    float y = 4.2163199048e-2;
    y = y * z + 2.4181311049e-2;
    y = y * z + 4.5470025998e-2;
    y = y * z + 7.4953002686e-2;
    y = y * z + 1.6666752422e-1;
    return y * z * x + x;
}

float asinf(float x) {
    const float magnitude = abs(x);
    if (is_nan(x) || magnitude > 1.0) return not_a_number();
    if (magnitude <= 0.5) return small_asin(x);
    return copy_sign(HALF_PI - 2.0 * small_asin(sqrt(0.5 * (1.0 - magnitude))), x);
}

float acosf(float x) {
    if (is_nan(x) || abs(x) > 1.0) return not_a_number();
    if (x > 0.5) return 2.0 * small_asin(sqrt(0.5 * (1.0 - x)));
    if (x < -0.5) return PI - 2.0 * small_asin(sqrt(0.5 * (1.0 + x)));
    return HALF_PI - small_asin(x);
}

float atanf(float x) {
    if (is_nan(x)) return x;
    const float magnitude = abs(x);
    if (magnitude > 1e8) return copy_sign(HALF_PI, x);
    float start = 0.0;
    float rest = magnitude;
    if (magnitude > 2.414213562) {
        start = HALF_PI;
        rest = -1.0 / magnitude;
    } else if (magnitude > 0.4142135624) {
        start = 0.5 * HALF_PI;
        rest = (magnitude - 1.0) / (magnitude + 1.0);
    }
    const float z = rest * rest;
    float y = 8.05374449538e-2;
    y = y * z - 1.38776856032e-1;
    y = y * z + 1.99777106478e-1;
    y = y * z - 3.33329491539e-1;
    return copy_sign(start + (y * z * rest + rest), x);
}

// The angle of the point (x, y), with the special cases of IEEE 754; GLSL leaves (0, 0) undefined.
float atan2f(float y, float x) {
    if (is_nan(x) || is_nan(y)) return not_a_number();
    float a = abs(y);
    float b = abs(x);
    float angle;
    if (a == b) {
        angle = a == 0.0 ? 0.0 : 0.5 * HALF_PI;
    } else {
        const bool steep = a > b;
        float large = steep ? a : b;
        float small = steep ? b : a;
        if (large > 1e30) {  // Vulkan leaves divisions by numbers near the largest float undefined
            large *= 1e-10;
            small *= 1e-10;
        }
        angle = is_inf(large) ? 0.0 : atanf(small / large);
        if (steep) angle = HALF_PI - angle;
    }
    if (sign_bit(x)) angle = PI - angle;
    return copy_sign(angle, y);
}
#endif
