#version 450
#extension GL_GOOGLE_include_directive : require
// y[i] = OP(x). The op's declaration defines OP(x), PARAMS (its arguments) and the types of elements.glsl.
// RANK 0: x is contiguous from its offset on. RANK > 0: x is strided, with RANK axes. VEC4: see elements.glsl.
layout(local_size_x = 128) in;
#include "elements.glsl"

layout(binding = 0) readonly buffer A { A_DATA a_data[]; };
layout(binding = 1) writeonly buffer Y { Y_DATA y_data[]; };
layout(push_constant) uniform Push {
    uint n;
    uint x_offset;
#if RANK > 0
    uint sizes[RANK];
    uint x_strides[RANK];
#endif
    PARAMS
} p;

#if RANK > 0
uint x_start;
#ifdef VEC4
A_TYPE x_constant;
#endif

void begin_row(uint row) {
    BEGIN_ROW(row, x, 1, LOAD_A)
}
#endif

#ifdef VEC4
#define RESULT_OF(component) Y_TYPE(OP(x4.component))

Y_VALUE result4(uint i) {
    const A_VALUE x4 = LOAD4(i, x, 1, A_VALUE, LOAD_A);
    return Y_VALUE(RESULT_OF(x), RESULT_OF(y), RESULT_OF(z), RESULT_OF(w));
}
#else
Y_TYPE result(uint i) {
    const A_TYPE x = LOAD_A(INDEX(i, x));
    return Y_TYPE(OP(x));
}
#endif

#include "main.glsl"
