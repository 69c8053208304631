#version 450
#extension GL_GOOGLE_include_directive : require
// y[i] = OP(a, b, c). The op's declaration defines OP(a,b,c), PARAMS (its arguments) and the types of elements.glsl.
// RANK 0: the operands are contiguous from their offsets on. RANK > 0: they are strided, with RANK axes; a stride of
// 0 broadcasts. VEC4: see elements.glsl.
layout(local_size_x = 128) in;
layout(constant_id = 0) const uint SCALARS = 0;
#include "elements.glsl"

layout(binding = 0) readonly buffer A { A_DATA a_data[]; };
layout(binding = 1) readonly buffer B { B_DATA b_data[]; };
layout(binding = 2) readonly buffer C { C_DATA c_data[]; };
layout(binding = 3) writeonly buffer Y { Y_DATA y_data[]; };
layout(push_constant) uniform Push {
    uint n;
    uint a_offset;
    uint b_offset;
    uint c_offset;
    SCALAR(A_TYPE) a;
    SCALAR(B_TYPE) b;
    SCALAR(C_TYPE) c;
#if RANK > 0
    uint sizes[RANK];
    uint a_strides[RANK];
    uint b_strides[RANK];
    uint c_strides[RANK];
#endif
    PARAMS
} p;

#if RANK > 0
uint a_start, b_start, c_start;
#ifdef VEC4
A_TYPE a_constant;
B_TYPE b_constant;
C_TYPE c_constant;
#endif

void begin_row(uint row) {
    BEGIN_ROW(row, a, 1, LOAD_A)
    BEGIN_ROW(row, b, 2, LOAD_B)
    BEGIN_ROW(row, c, 4, LOAD_C)
}
#endif

#ifdef VEC4
#define RESULT_OF(component) Y_TYPE(OP(a4.component, b4.component, c4.component))

Y_VALUE result4(uint i) {
    const A_VALUE a4 = (SCALARS & 1) != 0 ? A_VALUE(p.a) : LOAD4(i, a, 1, A_VALUE, LOAD_A);
    const B_VALUE b4 = (SCALARS & 2) != 0 ? B_VALUE(p.b) : LOAD4(i, b, 2, B_VALUE, LOAD_B);
    const C_VALUE c4 = (SCALARS & 4) != 0 ? C_VALUE(p.c) : LOAD4(i, c, 4, C_VALUE, LOAD_C);
    return Y_VALUE(RESULT_OF(x), RESULT_OF(y), RESULT_OF(z), RESULT_OF(w));
}
#else
Y_TYPE result(uint i) {
    const A_TYPE a = (SCALARS & 1) != 0 ? FROM_SCALAR(A_TYPE, p.a) : LOAD_A(INDEX(i, a));
    const B_TYPE b = (SCALARS & 2) != 0 ? FROM_SCALAR(B_TYPE, p.b) : LOAD_B(INDEX(i, b));
    const C_TYPE c = (SCALARS & 4) != 0 ? FROM_SCALAR(C_TYPE, p.c) : LOAD_C(INDEX(i, c));
    return Y_TYPE(OP(a, b, c));
}
#endif

#include "main.glsl"
