// Tests and constants for nan, infinity and signs, by the bits of a float: compilers may assume that nan and infinity
// do not occur.
#ifndef SPECIAL_GLSL
#define SPECIAL_GLSL

const uint INFINITY_BITS = 0x7f800000u;

uint magnitude_bits(float x) {
    return floatBitsToUint(x) & 0x7fffffffu;
}

bool is_nan(float x) {
    return magnitude_bits(x) > INFINITY_BITS;
}

bool is_inf(float x) {
    return magnitude_bits(x) == INFINITY_BITS;
}

bool is_finite(float x) {
    return magnitude_bits(x) < INFINITY_BITS;
}

// True for -0.0 too, and for some nans.
bool sign_bit(float x) {
    return (floatBitsToUint(x) & 0x80000000u) != 0;
}

float copy_sign(float x, float from) {
    return uintBitsToFloat(magnitude_bits(x) | (floatBitsToUint(from) & 0x80000000u));
}

float infinity() {
    return uintBitsToFloat(INFINITY_BITS);
}

float not_a_number() {
    return uintBitsToFloat(0x7fc00000u);
}

// Maximum and minimum that propagate nan; max and min do not on some drivers.
float larger(float a, float b) {
    return is_nan(a) || a > b ? a : b;
}

float smaller(float a, float b) {
    return is_nan(a) || a < b ? a : b;
}

int larger(int a, int b) {
    return max(a, b);
}

int smaller(int a, int b) {
    return min(a, b);
}

// Compares 64-bit integers, given as low and high word.
bool less(ivec2 a, ivec2 b) {
    return a.y < b.y || (a.y == b.y && uint(a.x) < uint(b.x));
}
#endif
