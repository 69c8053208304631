#version 450
#extension GL_GOOGLE_include_directive : require
// y[i] = OP(x): -DOP(x)=... and -DPARAMS=... come from the op's declaration, the types too
// (elements.glsl). RANK 0: x is contiguous from its offset on. RANK > 0: x is strided, with that many axes.
// FOURS: see elements.glsl.
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
uint x_row;
#ifdef FOURS
A_TYPE x_all;
#endif

void enter(uint row) {
    ENTER(row, x, 1, READ_A)
}
#endif

#ifdef FOURS
#define AT(at) Y_TYPE(OP(x4.at))

Y_VALUE results(uint i) {
    const A_VALUE x4 = FOUR(i, x, 1, A_VALUE, READ_A);
    return Y_VALUE(AT(x), AT(y), AT(z), AT(w));
}
#else
Y_TYPE result(uint i) {
    const A_TYPE x = READ_A(PLACE(i, x));
    return Y_TYPE(OP(x));
}
#endif

#include "main.glsl"
