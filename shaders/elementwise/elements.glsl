// Types, loads and addressing that the elementwise kernels share.
// X_WORD is the type of the words in which operand X is stored, float by default. X_BYTES: each word holds four
// elements, which are loaded as ints, because few devices can address single bytes. Y_BYTES: the result is
// stored in the same way, bools as 0 or 1.
// Bit i of SCALARS: operand i is the number p.<name>; the buffer at its binding is not read.
#include "math/called.glsl"

#ifndef A_WORD
#define A_WORD float
#endif
#ifndef B_WORD
#define B_WORD float
#endif
#ifndef C_WORD
#define C_WORD float
#endif
#ifndef Y_WORD
#define Y_WORD float
#endif

// X_TYPE is the type of an element in the expression, X_DATA the type of the buffer's elements, and LOAD_X loads
// an element. VEC4 (with RANK > 0): every invocation computes four neighbours along the last axis; X_VALUE is the
// type of these four, and LOAD_X loads them.
#ifdef VEC4
#define VECTOR_TYPE_float vec4
#define VECTOR_TYPE_int ivec4
#define VECTOR_TYPE_OF(word) VECTOR_TYPE_##word
#define VECTOR_TYPE(word) VECTOR_TYPE_OF(word)

ivec4 unpack_bytes(uint word) {
    return ivec4(word & 255u, (word >> 8) & 255u, (word >> 16) & 255u, word >> 24);
}

uint pack_bytes(ivec4 bytes) {
    const uvec4 low = uvec4(bytes) & 255u;
    return low.x | low.y << 8 | low.z << 16 | low.w << 24;
}
#else
uint extract_byte(uint word, uint index) {
    return (word >> ((index & 3) * 8)) & 255u;
}
#endif

#ifdef A_BYTES
#define A_TYPE int
#define A_DATA uint
#else
#define A_TYPE A_WORD
#endif
#if defined(VEC4) && defined(A_BYTES)
#define A_VALUE ivec4
#define LOAD_A(i) unpack_bytes(a_data[i])
#elif defined(VEC4)
#define A_VALUE VECTOR_TYPE(A_WORD)
#define A_DATA A_VALUE
#define LOAD_A(i) a_data[i]
#elif defined(A_BYTES)
#define LOAD_A(i) int(extract_byte(a_data[(i) / 4], i))
#else
#define A_DATA A_WORD
#define LOAD_A(i) a_data[i]
#endif

#ifdef B_BYTES
#define B_TYPE int
#define B_DATA uint
#else
#define B_TYPE B_WORD
#endif
#if defined(VEC4) && defined(B_BYTES)
#define B_VALUE ivec4
#define LOAD_B(i) unpack_bytes(b_data[i])
#elif defined(VEC4)
#define B_VALUE VECTOR_TYPE(B_WORD)
#define B_DATA B_VALUE
#define LOAD_B(i) b_data[i]
#elif defined(B_BYTES)
#define LOAD_B(i) int(extract_byte(b_data[(i) / 4], i))
#else
#define B_DATA B_WORD
#define LOAD_B(i) b_data[i]
#endif

#ifdef C_BYTES
#define C_TYPE int
#define C_DATA uint
#else
#define C_TYPE C_WORD
#endif
#if defined(VEC4) && defined(C_BYTES)
#define C_VALUE ivec4
#define LOAD_C(i) unpack_bytes(c_data[i])
#elif defined(VEC4)
#define C_VALUE VECTOR_TYPE(C_WORD)
#define C_DATA C_VALUE
#define LOAD_C(i) c_data[i]
#elif defined(C_BYTES)
#define LOAD_C(i) int(extract_byte(c_data[(i) / 4], i))
#else
#define C_DATA C_WORD
#define LOAD_C(i) c_data[i]
#endif

#ifdef Y_BYTES
#define Y_TYPE int
#define Y_DATA uint
#else
#define Y_TYPE Y_WORD
#endif
#if defined(VEC4) && defined(Y_BYTES)
#define Y_VALUE ivec4
#define PACKED(value) pack_bytes(value)
#elif defined(VEC4)
#define Y_VALUE VECTOR_TYPE(Y_WORD)
#define Y_DATA Y_VALUE
#define PACKED(value) value
#elif !defined(Y_BYTES)
#define Y_DATA Y_WORD
#endif

// INT64: operands are int64, which the expression sees as ivec2(low word, high word). Numbers are passed as ints.
#ifdef INT64
#define SCALAR(type) int
#define FROM_SCALAR(type, number) type(ivec2(number, (number) >> 31))
#else
#define SCALAR(type) type
#define FROM_SCALAR(type, number) type(number)
#endif

#if RANK > 0
#include "divide.glsl"
#endif

// INDEX(i, x) is the index of element i of x: within the row of the last BEGIN_ROW (RANK > 0), or of the whole
// operand. A row is the last axis.
#if RANK > 0
// How invocations find their rows; RowWalk in ops/elementwise/kernels.py has the same values.
#define WALK_DIVIDED 0  // by dividing the element's index by the length of a row
#define WALK_ROWS 1     // a workgroup strides over rows, in y
#define WALK_FLAT 2     // all operands are contiguous and form one row
layout(constant_id = 1) const uint AXES = RANK;  // number of axes in use, the last ones; those in front have size 1
layout(constant_id = 2) const uint WALK = WALK_DIVIDED;
#ifdef VEC4
layout(constant_id = 3) const uint CONSTANT_ROWS = 0;  // bit i: a row of operand i is one element, repeated
#define INDEX(i, operand) (operand##_start + (i))
// The vectors of a row are neighbours and start at multiples of four elements, so a row starts at start / 4.
#define BEGIN_ROW(row, operand, bit, load)                                                                   \
    operand##_start = WALK == WALK_FLAT ? p.operand##_offset                                                 \
                                        : p.operand##_offset + row_start(row, p.sizes, p.operand##_strides); \
    if ((CONSTANT_ROWS & bit) != 0) operand##_constant = load(operand##_start / 4)[operand##_start % 4];     \
    else operand##_start /= 4;
#define LOAD4(i, operand, bit, vector, load) \
    ((CONSTANT_ROWS & bit) != 0 ? vector(operand##_constant) : load(INDEX(i, operand)))
#else
#define INDEX(i, operand) (operand##_start + (i) * p.operand##_strides[RANK - 1])
#define BEGIN_ROW(row, operand, bit, load) \
    operand##_start = p.operand##_offset + row_start(row, p.sizes, p.operand##_strides);
#endif

// The offset of a row's first element.
uint row_start(uint row, const uint sizes[RANK], const uint strides[RANK]) {
    uint offset = 0;
    for (int axis = RANK - 2; axis > RANK - int(AXES); --axis) {
        const uvec2 quotient_rest = divided(row, sizes[axis]);
        offset += quotient_rest.y * strides[axis];
        row = quotient_rest.x;
    }
    return AXES > 1 ? offset + row * strides[RANK - AXES] : offset;
}
#else
#define INDEX(i, operand) (p.operand##_offset + (i))
#endif
