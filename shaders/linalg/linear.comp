#version 450
// y[r, f] = sum over i of x[r, i] * w[f, i] (+ bias[f]). The rows of both operands lie along the sum, so each weight is
// read once for ROWS rows. There are two methods:
//
//  TREE=0  one invocation computes one feature, from the first product to the last
//  TREE=1  one workgroup computes one feature: its invocations read neighbours, and their sums are added in a tree
//          in shared memory. For GPUs, where invocations that read far apart wait for each other.
#extension GL_GOOGLE_include_directive : require
const uint ROWS = 4;
const uint SIZE = 64;
layout(local_size_x = SIZE) in;
layout(binding = 0) readonly buffer X { float x[]; };
layout(binding = 1) readonly buffer W { float w[]; };
#if BIAS
layout(binding = 2) readonly buffer Bias { float bias[]; };
layout(binding = 3) writeonly buffer Y { float y[]; };
#else
layout(binding = 2) writeonly buffer Y { float y[]; };
#endif
layout(push_constant) uniform Push {
    uint rows, features, inner, x_offset, w_offset;
#if BIAS
    uint bias_offset;
#endif
#ifdef EPILOGUE
    EPILOGUE_PUSH
#endif
} p;
#define FIRST_OPERAND (BIAS + 3)
#include "epilogue.glsl"
#if TREE
shared vec4 sums[SIZE];
#endif

void main() {
#if TREE
    const uint f = gl_WorkGroupID.x, me = gl_LocalInvocationID.x, step = SIZE;
#else
    const uint f = gl_GlobalInvocationID.x, me = 0, step = 1;
    if (f >= p.features) return;
#endif
    const uint w_start = p.w_offset + f * p.inner;
#if BIAS
    const float start = me == 0 ? bias[p.bias_offset + f] : 0.0;
#else
    const float start = 0.0;
#endif
    // Rows past the end repeat the last one and are not stored.
    const uint r = gl_WorkGroupID.y * ROWS;
    const uint last = p.rows - 1;
    const uint x0 = p.x_offset + r * p.inner;
    const uint x1 = p.x_offset + min(r + 1, last) * p.inner;
    const uint x2 = p.x_offset + min(r + 2, last) * p.inner;
    const uint x3 = p.x_offset + min(r + 3, last) * p.inner;
    vec4 sum = vec4(start);
    for (uint i = me; i < p.inner; i += step) {
        sum += w[w_start + i] * vec4(x[x0 + i], x[x1 + i], x[x2 + i], x[x3 + i]);
    }
#if TREE
    sums[me] = sum;
    for (uint reach = SIZE / 2; reach > 0; reach /= 2) {
        barrier();
        if (me < reach) sums[me] += sums[me + reach];
    }
    if (me > 0) return;
    sum = sums[0];
#endif
    const uint at = r * p.features + f;
    y[at] = epilogue(sum.x, at, r, f);
    if (r + 1 < p.rows) y[at + p.features] = epilogue(sum.y, at + p.features, r + 1, f);
    if (r + 2 < p.rows) y[at + 2 * p.features] = epilogue(sum.z, at + 2 * p.features, r + 2, f);
    if (r + 3 < p.rows) y[at + 3 * p.features] = epilogue(sum.w, at + 3 * p.features, r + 3, f);
}
