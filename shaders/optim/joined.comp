#version 450
#extension GL_GOOGLE_include_directive : require
#include "optim/multi_tensor.glsl"
#include "math/special.glsl"
// An elementwise op of many tensors in one dispatch: y = OP(a, b, c), or a = OP(a, b, c) with IN_PLACE. An operand X
// with X_BINDING is a tensor of each job, the others are numbers. The op's declaration defines OP, PARAMS (its
// arguments) and OPERANDS.
layout(push_constant) uniform Push {
    uint first_row, last_row, workgroup_elements;
    float a, b, c;
    PARAMS
} p;

layout(binding = Y_BINDING) buffer Y { float y_data[]; };
#define ELEMENT(data, binding) data[row.offsets[binding - 1] + i]
#ifdef IN_PLACE
#define LOAD_A ELEMENT(y_data, Y_BINDING)
#elif defined(A_BINDING)
layout(binding = A_BINDING) readonly buffer A { float a_data[]; };
#define LOAD_A ELEMENT(a_data, A_BINDING)
#else
#define LOAD_A p.a
#endif
#ifdef B_BINDING
layout(binding = B_BINDING) readonly buffer B { float b_data[]; };
#define LOAD_B ELEMENT(b_data, B_BINDING)
#else
#define LOAD_B p.b
#endif
#ifdef C_BINDING
layout(binding = C_BINDING) readonly buffer C { float c_data[]; };
#define LOAD_C ELEMENT(c_data, C_BINDING)
#else
#define LOAD_C p.c
#endif

void main() {
    const Row row = row_of_workgroup(p.first_row, p.last_row);
    const uint start = (gl_WorkGroupID.x - row.first_workgroup) * p.workgroup_elements;
    const uint end = min(row.n, start + p.workgroup_elements);
    for (uint i = start + gl_LocalInvocationID.x; i < end; i += SIZE) {
        const float a = LOAD_A;
#if OPERANDS > 1
        const float b = LOAD_B;
#endif
#if OPERANDS > 2
        const float c = LOAD_C;
        const float y = OP(a, b, c);
#elif OPERANDS > 1
        const float y = OP(a, b);
#else
        const float y = OP(a);
#endif
        ELEMENT(y_data, Y_BINDING) = y;
    }
}
