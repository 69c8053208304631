#version 450
#extension GL_GOOGLE_include_directive : require
// Batch normalisation: y = (x - mean[c]) * scale[c], plus bias[c] with BIAS; x and y have shape (N, channels, inner).
// batch_norm_fold.comp computes mean and scale. The mean is subtracted first: x * scale + shift would cancel digits.
// FOURS: four elements of one channel are read at once; n, inner and offsets are in units of four.
#include "divide.glsl"
#if FOURS
#define VALUE vec4
#else
#define VALUE float
#endif

layout(local_size_x = 64) in;
layout(binding = 0) readonly buffer X { VALUE x[]; };
layout(binding = 1) readonly buffer Folded { float folded[]; };
#if BIAS
layout(binding = 2) readonly buffer Bias { float bias[]; };
layout(binding = 3) writeonly buffer Y { VALUE y[]; };
#else
layout(binding = 2) writeonly buffer Y { VALUE y[]; };
#endif
layout(push_constant) uniform Push {
    uint n, channels, inner, x_offset, bias_offset;
#ifdef EPILOGUE
    EPILOGUE_PUSH
#endif
#ifdef PROLOGUE
    PROLOGUE_PUSH
#endif
} p;
#define FIRST_OPERAND (BIAS + 3)
#include "epilogue.glsl"
#define SOURCE(i) x[p.x_offset + i]
#define SOURCE_FOURS FOURS
#include "prologue.glsl"

void main() {
    const uint step = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
    for (uint i = gl_GlobalInvocationID.x; i < p.n; i += step) {
        const uint c = divided(divided(i, p.inner).x, p.channels).y;
        VALUE value = (prologue(i) - folded[c]) * folded[p.channels + c];
#if BIAS
        value += bias[p.bias_offset + c];
#endif
        y[i] = epilogue_value(value, i);
    }
}
