// Floats as unsigned numbers of the same order: negative ones, positive ones, then nans. For minima and maxima over subgroups,
// which may drop a nan.
#ifndef FLOAT_ORDER_GLSL
#define FLOAT_ORDER_GLSL
#include "math/special.glsl"

uint order_of(float x) {
    const uint bits = floatBitsToUint(x);
    return is_nan(x) ? 0xffffffffu : sign_bit(x) ? ~bits : bits | 0x80000000u;
}

float from_order(uint order) {
    return uintBitsToFloat((order & 0x80000000u) != 0 ? order & 0x7fffffffu : ~order);
}

// The same with nans first.
uint order_with_nan_first(float x) {
    return is_nan(x) ? 0 : order_of(x);
}

float from_order_with_nan_first(uint order) {
    return order == 0 ? not_a_number() : from_order(order);
}
#endif
