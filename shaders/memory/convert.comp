#version 450
#extension GL_GOOGLE_include_directive : require
// y = x as elements of another dtype, both contiguous. Dtypes are given by their BYTES and their KIND: 0 unsigned,
// 1 signed, 2 float, 3 bool. Integers pass as 64 bits and floats as their bits, so that devices need no arithmetic
// with 64 bits, and flush no small numbers.
#include "wide_numbers.glsl"

#define UNSIGNED 0
#define SIGNED 1
#define FLOAT 2
#define BOOL 3

#if X_BYTES == 8
#define X_WORD uvec2
#else
#define X_WORD uint
#endif
#if Y_BYTES == 8
#define Y_WORD uvec2
#else
#define Y_WORD uint
#endif
#if Y_BYTES < 4
#define PER_WORD (4 / Y_BYTES)
#else
#define PER_WORD 1
#endif

layout(local_size_x = 128) in;
layout(binding = 0) readonly buffer X { X_WORD x[]; };
layout(binding = 1) writeonly buffer Y { Y_WORD y[]; };
layout(push_constant) uniform Push { uint n, x_offset; } p;

// The bits of an element, with those of integers extended to 64.
uvec2 loaded(uint i) {
#if X_BYTES == 8
    return x[i];
#elif X_BYTES == 4 && X_KIND == SIGNED
    return uvec2(x[i], int(x[i]) < 0 ? ~0u : 0u);
#elif X_BYTES == 4
    return uvec2(x[i], 0u);
#else
    const int bits = 8 * X_BYTES;
    const int shift = int(i % (4 / X_BYTES)) * bits;
    const uint word = x[i / (4 / X_BYTES)];
#if X_KIND == SIGNED
    const int number = bitfieldExtract(int(word), shift, bits);
    return uvec2(uint(number), number < 0 ? ~0u : 0u);
#else
    return uvec2(bitfieldExtract(word, shift, bits), 0u);
#endif
#endif
}

uvec2 converted(uvec2 bits) {
#if Y_KIND == BOOL
#if X_KIND == FLOAT && X_BYTES == 8
    return uvec2((bits.x | bits.y << 1) != 0u ? 1u : 0u, 0u);
#elif X_KIND == FLOAT
    return uvec2(bits.x << 1 != 0u ? 1u : 0u, 0u);
#else
    return uvec2((bits.x | bits.y) != 0u ? 1u : 0u, 0u);
#endif
#elif Y_KIND == FLOAT
#if X_KIND != FLOAT && Y_BYTES == 8
    return float64_of_int64(bits);
#elif X_KIND != FLOAT
    return uvec2(float32_of_int64(bits), 0u);
#elif X_BYTES == 4 && Y_BYTES == 8
    return float64_of_float32(bits.x);
#elif X_BYTES == 8 && Y_BYTES == 4
    return uvec2(float32_of_float64(bits), 0u);
#else
    return bits;
#endif
#elif X_KIND == FLOAT
#if X_BYTES == 4
    const uvec2 number = int64_of_float64(float64_of_float32(bits.x));
#else
    const uvec2 number = int64_of_float64(bits);
#endif
#if Y_BYTES < 8
    // As by the conversion instruction of x86 for 32 bits, of which shorter dtypes take the low ones.
    return number.y == (int(number.x) < 0 ? ~0u : 0u) ? number : uvec2(0x80000000u, ~0u);
#else
    return number;
#endif
#else
    return bits;
#endif
}

void main() {
    const uint step = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
    for (uint j = gl_GlobalInvocationID.x; j < (p.n + PER_WORD - 1) / PER_WORD; j += step) {
#if Y_BYTES == 8
        y[j] = converted(loaded(p.x_offset + j));
#elif Y_BYTES == 4
        y[j] = converted(loaded(p.x_offset + j)).x;
#else
        uint word = 0;
        for (uint k = 0; k < PER_WORD && PER_WORD * j + k < p.n; ++k) {
            const uint element = converted(loaded(p.x_offset + PER_WORD * j + k)).x;
            word = bitfieldInsert(word, element, int(k) * 8 * Y_BYTES, 8 * Y_BYTES);
        }
        y[j] = word;
#endif
    }
}
