#version 450
// y[y_offset + i] is the sum of x[i], x[i + n], ... over all slices of n elements, in their order.
#extension GL_GOOGLE_include_directive : require
const uint SIZE = 64;
layout(local_size_x = SIZE) in;
layout(binding = 0) restrict readonly buffer X { float x[]; };
layout(binding = 1) restrict writeonly buffer Y { float y[]; };
layout(push_constant) uniform Push {
    uint n, slices, y_offset;
#ifdef EPILOGUE
    EPILOGUE_PUSH
#endif
} p;
#define FIRST_OPERAND 2
#include "epilogue.glsl"

void main() {
    for (uint i = gl_GlobalInvocationID.x; i < p.n; i += gl_NumWorkGroups.x * SIZE) {
        float sum = 0.0;
        for (uint s = 0; s < p.slices; ++s) sum += x[s * p.n + i];
        y[p.y_offset + i] = epilogue(sum, p.y_offset + i, 0, 0);
    }
}
