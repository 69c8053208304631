// What a product or a convolution does with each of its results before it stores it: nothing, unless EPILOGUE is
// defined. A shader includes this behind its push constants, and defines FIRST_OPERAND, the first binding that is free.
//
//  EPILOGUE       statements that return what is stored: of v, the result, and of x0, x1, ..., the operands' elements
//  EPILOGUE_PUSH  push constants behind those of the shader; may be empty
//  OPERANDS       how many operands there are, 4 at most; they are floats and only read
//  PLACE0, ...    where in an operand the element of a result lies:
//      ELEMENT    where it lies in the result: at `at`
//      ROW        at `row`, a matrix's row, or the channel of a convolution
//      COLUMN     at `column`, of a matrix
//      ONE        at 0
//      DIVIDED    at at / p.inner0 % p.period0, which are in EPILOGUE_PUSH
//  DROPOUTS       how many factors of dropout there are, 2 at most: r0 and r1 are p.scale0 and p.scale1, or 0 for random
//                 elements, as dropout.comp draws them; only epilogue4 has them
//
// epilogue4 takes four results that are neighbours, and begin at a multiple of four elements and columns.
#ifdef EPILOGUE
#include "math/called.glsl"
#include "divide.glsl"
#if DROPOUTS > 0
#include "philox.glsl"
#endif

#define OPERAND(n)                                                                      \
    layout(binding = FIRST_OPERAND + n) readonly buffer Operand##n { float operand##n[]; }; \
    layout(binding = FIRST_OPERAND + n) readonly buffer Fours##n { vec4 fours##n[]; };
#if OPERANDS > 0
OPERAND(0)
#endif
#if OPERANDS > 1
OPERAND(1)
#endif
#if OPERANDS > 2
OPERAND(2)
#endif
#if OPERANDS > 3
OPERAND(3)
#endif

// EACH(f): an argument f(n) more for each operand.
#if OPERANDS == 0
#define EACH(f)
#elif OPERANDS == 1
#define EACH(f) , f(0)
#elif OPERANDS == 2
#define EACH(f) , f(0), f(1)
#elif OPERANDS == 3
#define EACH(f) , f(0), f(1), f(2)
#else
#define EACH(f) , f(0), f(1), f(2), f(3)
#endif

// EACH_DROPOUT(f): one more for each factor of dropout.
#if DROPOUTS == 0
#define EACH_DROPOUT(f)
#elif DROPOUTS == 1
#define EACH_DROPOUT(f) , f(0)
#else
#define EACH_DROPOUT(f) , f(0), f(1)
#endif

#define READ_ELEMENT(n) operand##n[at]
#define READ_ROW(n) operand##n[row]
#define READ_COLUMN(n) operand##n[column]
#define READ_ONE(n) operand##n[0]
#define DIVIDED_AT(n, at) operand##n[divided(divided(at, p.inner##n).x, p.period##n).y]
#define READ_DIVIDED(n) DIVIDED_AT(n, at)
#define READ_FOUR_ELEMENT(n) fours##n[at / 4]
#define READ_FOUR_ROW(n) vec4(operand##n[row])
#define READ_FOUR_COLUMN(n) fours##n[column / 4]
#define READ_FOUR_ONE(n) vec4(operand##n[0])
#define READ_FOUR_DIVIDED(n) \
    vec4(DIVIDED_AT(n, at), DIVIDED_AT(n, at + 1), DIVIDED_AT(n, at + 2), DIVIDED_AT(n, at + 3))
#define PASTE(a, b) a##b
#define JOIN(a, b) PASTE(a, b)
#define READ(n) JOIN(READ_, PLACE##n)(n)
#define READ_FOUR(n) JOIN(READ_FOUR_, PLACE##n)(n)

#define PARAMETER(n) const float x##n
#define PARAMETER4(n) const vec4 x##n
#define DROPOUT(n) const float r##n
#define DROPOUT4(n) const vec4 r##n
#define DRAW(n)                                                                                                  \
    mix(vec4(p.scale##n), vec4(0.0),                                                                             \
        lessThan(random_words(uvec2(p.key_low##n, p.key_high##n), uvec2(p.start_low##n, p.start_high##n), at / 4), \
                 uvec4(p.threshold##n)))
#define FIRST_DROPOUT(n) r##n.x
#define SECOND_DROPOUT(n) r##n.y
#define THIRD_DROPOUT(n) r##n.z
#define FOURTH_DROPOUT(n) r##n.w
#define NO_DROPOUT(n) 1.0
#define FIRST(n) x##n.x
#define SECOND(n) x##n.y
#define THIRD(n) x##n.z
#define FOURTH(n) x##n.w

float epilogue_of(const float v EACH(PARAMETER) EACH_DROPOUT(DROPOUT)) {
    EPILOGUE
}

vec4 epilogue_of4(const vec4 v EACH(PARAMETER4) EACH_DROPOUT(DROPOUT4)) {
    return vec4(epilogue_of(v.x EACH(FIRST) EACH_DROPOUT(FIRST_DROPOUT)),
                epilogue_of(v.y EACH(SECOND) EACH_DROPOUT(SECOND_DROPOUT)),
                epilogue_of(v.z EACH(THIRD) EACH_DROPOUT(THIRD_DROPOUT)),
                epilogue_of(v.w EACH(FOURTH) EACH_DROPOUT(FOURTH_DROPOUT)));
}

float epilogue(const float v, const uint at, const uint row, const uint column) {
    return epilogue_of(v EACH(READ) EACH_DROPOUT(NO_DROPOUT));
}

vec4 epilogue4(const vec4 v, const uint at, const uint row, const uint column) {
    return epilogue_of4(v EACH(READ_FOUR) EACH_DROPOUT(DRAW));
}
#undef EACH
#undef FIRST
#else
#define epilogue(v, at, row, column) (v)
#define epilogue4(v, at, row, column) (v)
#endif

// Of kernels that write VALUEs, which are four elements with FOURS; i counts these.
#ifdef FOURS
#if FOURS
#define epilogue_value(v, i) epilogue4(v, 4 * (i), 0, 0)
#else
#define epilogue_value(v, i) epilogue(v, i, 0, 0)
#endif
#endif
