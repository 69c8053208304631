// The nearest float of 16 bits, of two as near the even one: what memory would hold.
#ifndef HALVES_GLSL
#define HALVES_GLSL

float as_bfloat16(float value) {
    const uint bits = floatBitsToUint(value);
    const uint rounded = bits + 0x7fffu + ((bits >> 16) & 1u);
    return uintBitsToFloat((bits & 0x7fffffffu) > 0x7f800000u ? 0x7fc00000u : rounded & 0xffff0000u);
}

float as_float16(float value) {
    const uint bits = floatBitsToUint(value);
    const uint magnitude = bits & 0x7fffffffu;
    uint near = (magnitude + 0xfffu + ((magnitude >> 13) & 1u)) & ~0x1fffu;
    if (magnitude >= 0x477ff000u) near = max(magnitude, 0x7f800000u);  // beyond 65504 is infinity; nan stays
    if (magnitude < 0x38800000u) {
        // A multiple of 2^-24, the last bit of 0.5: the sum rounds to it.
        precise const float sum = uintBitsToFloat(magnitude) + 0.5;
        near = floatBitsToUint(sum - 0.5);
    }
    return uintBitsToFloat((bits & 0x80000000u) | near);
}
#endif
