// What the elementwise kernels have in common. An operand X lies in words of the type X_WORD, float where
// nothing else is said. X_BYTES: they hold four elements each, which are read as ints, because few devices
// can address single bytes. Y_BYTES: results are stored in this way, bools as 0 or 1.
// Bit i of NUMBERS: operand i is the number p.<name>, and what is bound in its place is not read.
#ifdef EXPONENTIAL
#include "math/exponential.glsl"
#endif
#ifdef LOGARITHM
#include "math/logarithm.glsl"
#endif
#ifdef TRIGONOMETRY
#include "math/trigonometry.glsl"
#endif
#ifdef ERROR_FUNCTION
#include "math/error_function.glsl"
#endif
#ifdef POWER
#include "math/power.glsl"
#endif
#ifdef REMAINDER
#include "math/remainder.glsl"
#endif
#include "math/special.glsl"

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

// X_TYPE is what an expression sees of an element, X_DATA what the memory is declared as, and READ_X an
// element of it. With FOURS (and RANK > 0), every invocation computes four neighbours along the last axis, and
// X_VALUE is what it has of them.
#ifdef FOURS
#define VECTOR_float vec4
#define VECTOR_int ivec4
#define VECTOR_OF(word) VECTOR_##word
#define VECTOR(word) VECTOR_OF(word)

ivec4 bytes_of(uint word) {
    return ivec4(word & 255u, (word >> 8) & 255u, (word >> 16) & 255u, word >> 24);
}

uint word_of(ivec4 bytes) {
    const uvec4 low = uvec4(bytes) & 255u;
    return low.x | low.y << 8 | low.z << 16 | low.w << 24;
}
#else
uint byte_of(uint word, uint at) {
    return (word >> ((at & 3) * 8)) & 255u;
}
#endif

#ifdef A_BYTES
#define A_TYPE int
#define A_DATA uint
#else
#define A_TYPE A_WORD
#endif
#if defined(FOURS) && defined(A_BYTES)
#define A_VALUE ivec4
#define READ_A(at) bytes_of(a_data[at])
#elif defined(FOURS)
#define A_VALUE VECTOR(A_WORD)
#define A_DATA A_VALUE
#define READ_A(at) a_data[at]
#elif defined(A_BYTES)
#define READ_A(at) int(byte_of(a_data[(at) / 4], at))
#else
#define A_DATA A_WORD
#define READ_A(at) a_data[at]
#endif

#ifdef B_BYTES
#define B_TYPE int
#define B_DATA uint
#else
#define B_TYPE B_WORD
#endif
#if defined(FOURS) && defined(B_BYTES)
#define B_VALUE ivec4
#define READ_B(at) bytes_of(b_data[at])
#elif defined(FOURS)
#define B_VALUE VECTOR(B_WORD)
#define B_DATA B_VALUE
#define READ_B(at) b_data[at]
#elif defined(B_BYTES)
#define READ_B(at) int(byte_of(b_data[(at) / 4], at))
#else
#define B_DATA B_WORD
#define READ_B(at) b_data[at]
#endif

#ifdef C_BYTES
#define C_TYPE int
#define C_DATA uint
#else
#define C_TYPE C_WORD
#endif
#if defined(FOURS) && defined(C_BYTES)
#define C_VALUE ivec4
#define READ_C(at) bytes_of(c_data[at])
#elif defined(FOURS)
#define C_VALUE VECTOR(C_WORD)
#define C_DATA C_VALUE
#define READ_C(at) c_data[at]
#elif defined(C_BYTES)
#define READ_C(at) int(byte_of(c_data[(at) / 4], at))
#else
#define C_DATA C_WORD
#define READ_C(at) c_data[at]
#endif

#ifdef Y_BYTES
#define Y_TYPE int
#define Y_DATA uint
#else
#define Y_TYPE Y_WORD
#endif
#if defined(FOURS) && defined(Y_BYTES)
#define Y_VALUE ivec4
#define WRITE(value) word_of(value)
#elif defined(FOURS)
#define Y_VALUE VECTOR(Y_WORD)
#define Y_DATA Y_VALUE
#define WRITE(value) value
#elif !defined(Y_BYTES)
#define Y_DATA Y_WORD
#endif

// LONG: operands are int64, of which an expression sees the low and the high word. Numbers are given as ints.
#ifdef LONG
#define NUMBER(type) int
#define OF_NUMBER(type, number) type(number, (number) >> 31)
#else
#define NUMBER(type) type
#define OF_NUMBER(type, number) type(number)
#endif

#if RANK > 0
#include "divide.glsl"
#endif

// Where element i of an operand lies: of the row that was entered (RANK > 0), or of them all.
#if RANK > 0
#define DIVIDED 0  // rows are found by division
#define SPREAD 1   // workgroups are spread over rows, in y
#define FLAT 2     // all operands are contiguous, which is one row
layout(constant_id = 1) const uint AXES = RANK; // the last of the RANK; those in front have size 1
layout(constant_id = 2) const uint WALK = DIVIDED;
#ifdef FOURS
layout(constant_id = 3) const uint ALIKE = 0;   // bit i: a row of operand i is one element, repeated
#define PLACE(i, operand) (operand##_row + (i))
// Fours of a row are neighbours and lie at multiples of four.
#define ENTER(row, operand, bit, read)                                                            \
    operand##_row = WALK == FLAT ? p.operand##_offset                                              \
                                 : p.operand##_offset + row_at(row, p.sizes, p.operand##_strides); \
    if ((ALIKE & bit) != 0) operand##_all = read(operand##_row / 4)[operand##_row % 4];            \
    else operand##_row /= 4;
#define FOUR(i, operand, bit, value, read) ((ALIKE & bit) != 0 ? value(operand##_all) : read(PLACE(i, operand)))
#else
#define PLACE(i, operand) (operand##_row + (i) * p.operand##_strides[RANK - 1])
#define ENTER(row, operand, bit, read) \
    operand##_row = p.operand##_offset + row_at(row, p.sizes, p.operand##_strides);
#endif

// Where a row begins, a row being the last axis.
uint row_at(uint row, const uint sizes[RANK], const uint strides[RANK]) {
    uint at = 0;
    for (int axis = RANK - 2; axis > RANK - int(AXES); --axis) {
        const uvec2 found = divided(row, sizes[axis]);
        at += found.y * strides[axis];
        row = found.x;
    }
    return AXES > 1 ? at + row * strides[RANK - AXES] : at;
}
#else
#define PLACE(i, operand) (p.operand##_offset + (i))
#endif
