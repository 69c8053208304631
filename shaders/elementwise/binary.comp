#version 450
#extension GL_GOOGLE_include_directive : require
// y[i] = OP(a, b): -DOP(a,b)=... and -DPARAMS=... come from the op's declaration.
// RANK 0: both operands are contiguous from their offsets on.
// RANK > 0: both are strided, with that many axes; a stride of 0 broadcasts.
#if RANK > 0
#include "index.glsl"
#endif

layout(local_size_x = 128) in;
layout(binding = 0) readonly buffer A { float a_data[]; };
layout(binding = 1) readonly buffer B { float b_data[]; };
layout(binding = 2) writeonly buffer Y { float y_data[]; };
layout(push_constant) uniform Push {
    uint n;
    uint a_offset;
    uint b_offset;
#if RANK > 0
    uint sizes[RANK];
    uint a_strides[RANK];
    uint b_strides[RANK];
#endif
    PARAMS
} p;

void main() {
    const uint step = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
    for (uint i = gl_GlobalInvocationID.x; i < p.n; i += step) {
#if RANK > 0
        const float a = a_data[p.a_offset + strided(i, p.sizes, p.a_strides)];
        const float b = b_data[p.b_offset + strided(i, p.sizes, p.b_strides)];
#else
        const float a = a_data[p.a_offset + i];
        const float b = b_data[p.b_offset + i];
#endif
        y_data[i] = OP(a, b);
    }
}
