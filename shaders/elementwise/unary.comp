#version 450
#extension GL_GOOGLE_include_directive : require
// y[i] = OP(x): -DOP(x)=... and -DPARAMS=... come from the op's declaration.
// RANK 0: x is contiguous from its offset on. RANK > 0: x is strided, with that many axes.
#if RANK > 0
#include "index.glsl"
#endif

layout(local_size_x = 128) in;
layout(binding = 0) readonly buffer X { float x_data[]; };
layout(binding = 1) writeonly buffer Y { float y_data[]; };
layout(push_constant) uniform Push {
    uint n;
    uint x_offset;
#if RANK > 0
    uint sizes[RANK];
    uint x_strides[RANK];
#endif
    PARAMS
} p;

void main() {
    const uint step = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
    for (uint i = gl_GlobalInvocationID.x; i < p.n; i += step) {
#if RANK > 0
        const float x = x_data[p.x_offset + strided(i, p.sizes, p.x_strides)];
#else
        const float x = x_data[p.x_offset + i];
#endif
        y_data[i] = OP(x);
    }
}
