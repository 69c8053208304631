// Weights in few bits, as dl4all/ops/linalg/packed_formats.py describes them; FORMAT is ggml's number of the layout.
// A unit is 32 weights, number `unit` of a block whose bytes begin with word `block` of w[] and whose scales with
// number `scale` of those in scales[], two in a word. A weight is (number - ZERO) * scale - offset.
//   numbers_in(block, unit, i)    the numbers of weights 4 i and on, and of weights 16 + 4 i and on, a byte each
//   scales_of(...)                the scales of the first and of the last 16 weights
//   offset_of(...)                of all of them; where there is none, OFFSET is 0
#if FORMAT == 2 // Q4_0
#define UNITS 1
#define WORDS 4
#define SCALES 1
#define ZERO 8.0
#elif FORMAT == 8 // Q8_0
#define UNITS 1
#define WORDS 8
#define SCALES 1
#define ZERO 128.0
#elif FORMAT == 12 // Q4_K
#define UNITS 8
#define WORDS 35
#define SCALES 2
#define ZERO 0.0
#elif FORMAT == 14 // Q6_K
#define UNITS 8
#define WORDS 52
#define SCALES 1
#define ZERO 32.0
#endif
#define OFFSET (FORMAT == 12 ? 1 : 0)
#if FORMAT == 14
#define DOTS vec2 // of each half, which has a scale of its own
#define HALVES 2
#else
#define DOTS float
#define HALVES 1
#endif

vec4 weights_in(const uint numbers) {
    return vec4((uvec4(numbers) >> uvec4(0, 8, 16, 24)) & 255u) - ZERO;
}

uvec2 numbers_in(const uint block, const uint unit, const uint i) {
#if FORMAT == 2
    const uint both = w[block + i];
    return uvec2(both, both >> 4) & 0x0f0f0f0fu;
#elif FORMAT == 8
    return uvec2(w[block + i], w[block + i + 4]) ^ 0x80808080u; // from -128 on to from 0 on
#elif FORMAT == 12
    const uint at = block + 3 + unit / 2 * 8 + i;
    return uvec2(w[at], w[at + 4]) >> (unit & 1) * 4 & 0x0f0f0f0fu;
#else
    const uint low = block + unit / 4 * 16 + (unit & 1) * 8 + i, high = block + 32 + unit / 4 * 8 + i;
    const uvec2 lower = uvec2(w[low], w[low + 4]) >> (unit / 2 & 1) * 4 & 0x0f0f0f0fu;
    return lower | (uvec2(w[high], w[high + 4]) >> (unit & 3) * 2 & 0x03030303u) << 4;
#endif
}

float scale_in(const uint at) {
    const vec2 pair = unpackHalf2x16(scales[at / 2]);
    return (at & 1u) == 0 ? pair.x : pair.y;
}

uint byte_in(const uint block, const uint at) {
    return w[block + at / 4] >> (at & 3) * 8 & 255u;
}

vec2 scales_of(const uint block, const uint scale, const uint unit) {
#if FORMAT == 12
    const uint factor = unit < 4 ? byte_in(block, unit) & 63u
                                 : byte_in(block, unit + 4) & 15u | byte_in(block, unit - 4) >> 6 << 4;
    return vec2(scale_in(scale) * float(factor));
#elif FORMAT == 14
    const ivec2 factors = ivec2(byte_in(block, 192 + unit * 2), byte_in(block, 193 + unit * 2)) << 24 >> 24;
    return scale_in(scale) * vec2(factors);
#else
    return vec2(scale_in(scale));
#endif
}

float offset_of(const uint block, const uint scale, const uint unit) {
#if FORMAT == 12
    const uint factor = unit < 4 ? byte_in(block, unit + 4) & 63u
                                 : byte_in(block, unit + 4) >> 4 | byte_in(block, unit) >> 6 << 4;
    return scale_in(scale + 1) * float(factor);
#else
    return 0.0;
#endif
}
