// Quotient and remainder of a / b, for a < 2^31 and b < 2^30, computed in floats: CPU drivers divide the integers of a
// vector one by one, which takes longer than a memory access. The first quotient may be off by some hundreds, the
// corrected one by one.
#ifndef DIVIDE_GLSL
#define DIVIDE_GLSL
uvec2 divided(uint a, uint b) {
    const float inverse = 1.0 / float(b);
    uint quotient = uint(float(a) * inverse);
    int remainder = int(a - quotient * b);
    const int correction = int(floor(float(remainder) * inverse));
    quotient += correction;
    remainder -= correction * int(b);
    const bool low = remainder < 0;
    const bool high = remainder >= int(b);
    quotient += low ? -1 : high ? 1 : 0;
    remainder += low ? int(b) : high ? -int(b) : 0;
    return uvec2(quotient, remainder);
}
#endif
