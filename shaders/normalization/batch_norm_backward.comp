#version 450
#extension GL_GOOGLE_include_directive : require
// The gradient of batch normalisation by the batch's own statistics, with respect to its input; all tensors have shape
// (N, channels, inner). batch_norm_backward_fold.comp computes the factors of each channel.
// FOURS: four elements of one channel are read at once; n, inner and offsets are in units of four.
#include "divide.glsl"
#if FOURS
#define VALUE vec4
#else
#define VALUE float
#endif

layout(local_size_x = 64) in;
layout(binding = 0) readonly buffer G { VALUE g[]; };
layout(binding = 1) readonly buffer X { VALUE x[]; };
layout(binding = 2) readonly buffer Folded { float folded[]; };
layout(binding = 3) writeonly buffer Y { VALUE y[]; };
layout(push_constant) uniform Push {
    uint n, channels, inner, g_offset, x_offset;
#ifdef EPILOGUE
    EPILOGUE_PUSH
#endif
#ifdef PROLOGUE
    PROLOGUE_PUSH
#endif
} p;
#define FIRST_OPERAND 4
#include "epilogue.glsl"
#define SOURCE(i) g[p.g_offset + i]
#define SOURCE_FOURS FOURS
#include "prologue.glsl"

void main() {
    const uint step = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
    for (uint i = gl_GlobalInvocationID.x; i < p.n; i += step) {
        const uint c = divided(divided(i, p.inner).x, p.channels).y;
        const VALUE away = (x[p.x_offset + i] - folded[c]) * folded[3 * p.channels + c];
        y[i] = epilogue_value(folded[p.channels + c] * (prologue(i) - folded[2 * p.channels + c] - away), i);
    }
}
