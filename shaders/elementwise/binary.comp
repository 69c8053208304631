#version 450
#extension GL_GOOGLE_include_directive : require
// y[i] = OP(a, b): -DOP(a,b)=... and -DPARAMS=... come from the op's declaration, the types too
// (elements.glsl). RANK 0: the operands are contiguous from their offsets on.
// RANK > 0: they are strided, with that many axes; a stride of 0 broadcasts. FOURS: see elements.glsl.
layout(local_size_x = 128) in;
layout(constant_id = 0) const uint NUMBERS = 0;
#include "elements.glsl"

layout(binding = 0) readonly buffer A { A_DATA a_data[]; };
layout(binding = 1) readonly buffer B { B_DATA b_data[]; };
layout(binding = 2) writeonly buffer Y { Y_DATA y_data[]; };
layout(push_constant) uniform Push {
    uint n;
    uint a_offset;
    uint b_offset;
    NUMBER(A_TYPE) a;
    NUMBER(B_TYPE) b;
#if RANK > 0
    uint sizes[RANK];
    uint a_strides[RANK];
    uint b_strides[RANK];
#endif
    PARAMS
} p;

#if RANK > 0
uint a_row, b_row;
#ifdef FOURS
A_TYPE a_all;
B_TYPE b_all;
#endif

void enter(uint row) {
    ENTER(row, a, 1, READ_A)
    ENTER(row, b, 2, READ_B)
}
#endif

#ifdef FOURS
#define AT(at) Y_TYPE(OP(a4.at, b4.at))

Y_VALUE results(uint i) {
    const A_VALUE a4 = (NUMBERS & 1) != 0 ? A_VALUE(p.a) : FOUR(i, a, 1, A_VALUE, READ_A);
    const B_VALUE b4 = (NUMBERS & 2) != 0 ? B_VALUE(p.b) : FOUR(i, b, 2, B_VALUE, READ_B);
    return Y_VALUE(AT(x), AT(y), AT(z), AT(w));
}
#else
Y_TYPE result(uint i) {
    const A_TYPE a = (NUMBERS & 1) != 0 ? OF_NUMBER(A_TYPE, p.a) : READ_A(PLACE(i, a));
    const B_TYPE b = (NUMBERS & 2) != 0 ? OF_NUMBER(B_TYPE, p.b) : READ_B(PLACE(i, b));
    return Y_TYPE(OP(a, b));
}
#endif

#include "main.glsl"
