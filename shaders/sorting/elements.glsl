// Elements of BYTES bytes in words of 32 bits, and their keys: whole numbers in the order of the elements.
// KIND: 0 unsigned integers and bools, 1 signed integers, 2 floats, 3 bfloat16. nan has the largest key, -0.0 that of 0.0.
#if BYTES == 8
#define KEY uvec2  // the low and the high word
#else
#define KEY uint
const uint MASK = 0xffffffffu >> (32 - 8 * BYTES);
#endif

#if BYTES == 8
#define ELEMENT(at) x[at]
#elif BYTES == 4
#define ELEMENT(at) x[at]
#else
#define ELEMENT(at) ((x[(at) / (4 / BYTES)] >> (8 * BYTES * ((at) % (4 / BYTES)))) & MASK)
#endif

#if BYTES == 8
uvec2 key_of(uvec2 bits) {
#if KIND == 0
    return bits;
#elif KIND == 1
    return uvec2(bits.x, bits.y ^ 0x80000000u);
#else
    const uint magnitude = bits.y & 0x7fffffffu;
    if (magnitude > 0x7ff00000u || (magnitude == 0x7ff00000u && bits.x != 0)) return uvec2(0xffffffffu);
    if ((magnitude | bits.x) == 0) return uvec2(0, 0x80000000u);
    return (bits.y & 0x80000000u) != 0 ? ~bits : uvec2(bits.x, bits.y | 0x80000000u);
#endif
}
#else
uint key_of(uint bits) {
#if KIND == 0
    return bits;
#elif KIND == 1
    return bits ^ (1u << (8 * BYTES - 1));
#else
    const uint sign = 1u << (8 * BYTES - 1);
    const uint infinity = BYTES == 4 ? 0x7f800000u : KIND == 3 ? 0x7f80u : 0x7c00u;
    const uint magnitude = bits & (sign - 1u);
    if (magnitude > infinity) return MASK;
    if (magnitude == 0) return sign;
    return (bits & sign) != 0 ? ~bits & MASK : bits | sign;
#endif
}
#endif
