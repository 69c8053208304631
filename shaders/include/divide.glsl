// The quotient and the rest, for a below 2^31 and b below 2^30, by way of floats: drivers that run on the processor divide
// integers one by one, which takes longer than a memory access. The first quotient may be off by some hundreds, the
// second by one.
uvec2 divided(uint a, uint b) {
    const float inverse = 1.0 / float(b);
    uint quotient = uint(float(a) * inverse);
    int rest = int(a - quotient * b);
    const int more = int(floor(float(rest) * inverse));
    quotient += more;
    rest -= more * int(b);
    const bool low = rest < 0;
    const bool high = rest >= int(b);
    quotient += low ? -1 : high ? 1 : 0;
    rest += low ? int(b) : high ? -int(b) : 0;
    return uvec2(quotient, rest);
}
