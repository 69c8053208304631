#version 450
// y[r, f] = sum over i of x[r, i] * w[f, i] (+ bias[f]). The rows of both operands lie along the sum, so each weight is
// read once for ROWS rows. One workgroup computes FEATURES features: its invocations read neighbours, VEC numbers at a
// time, those of x once for all features, and their sums are added in shared memory.
//
// BITS=4 has w in blocks of 32 weights q from 0 to 15, which stand for (q - 8) * scale: byte i of 16 holds weights i
// and i + 16. A float16 scale serves p.blocks of them, within a row.
#extension GL_GOOGLE_include_directive : require
layout(local_size_x = SIZE) in;
#if VEC == 4
#define NUMBERS vec4
#else
#define NUMBERS float
#endif
layout(binding = 0) readonly buffer X { NUMBERS x[]; };
#if BITS == 4
#include "int4.glsl"
layout(binding = 1) readonly buffer W { uvec4 w[]; };
layout(binding = 2) readonly buffer Scales { uint scales[]; };
#else
layout(binding = 1) readonly buffer W { NUMBERS w[]; };
#endif
#define NEXT (2 + (BITS == 4 ? 1 : 0))
#if BIAS
layout(binding = NEXT) readonly buffer Bias { float bias[]; };
#endif
layout(binding = NEXT + BIAS) writeonly buffer Y { float y[]; };
layout(push_constant) uniform Push {
    uint rows, features, inner, x_offset, w_offset;
#if BITS == 4
    uint scale_offset, blocks;
#endif
#if BIAS
    uint bias_offset;
#endif
#ifdef EPILOGUE
    EPILOGUE_PUSH
#endif
} p;
#define FIRST_OPERAND (NEXT + BIAS + 1)
#include "epilogue.glsl"

void store(const float sum, const uint r, const uint f) {
    if (r >= p.rows || f >= p.features) return;
    const uint at = r * p.features + f;
#if BIAS
    y[at] = epilogue(sum + bias[p.bias_offset + f], at, r, f);
#else
    y[at] = epilogue(sum, at, r, f);
#endif
}

shared float sums[SIZE][ROWS * FEATURES];

void main() {
    const uint me = gl_LocalInvocationID.x;
    const uint first_row = gl_WorkGroupID.y * ROWS, first_feature = gl_WorkGroupID.x * FEATURES;
    // Rows and features past the end repeat the last one and are not stored.
    uint x_at[ROWS], feature[FEATURES];
    float sum[ROWS][FEATURES];
    for (uint r = 0; r < ROWS; ++r) {
        x_at[r] = (p.x_offset + min(first_row + r, p.rows - 1) * p.inner) / VEC;
        for (uint f = 0; f < FEATURES; ++f) sum[r][f] = 0.0;
    }
    for (uint f = 0; f < FEATURES; ++f) feature[f] = min(first_feature + f, p.features - 1);
#if BITS == 4
    const uint blocks = p.inner / 32;
    for (uint i = me; i < blocks; i += SIZE) {
        uvec4 words[FEATURES];
        float dots[ROWS][FEATURES];
        for (uint f = 0; f < FEATURES; ++f) {
            words[f] = w[p.w_offset / 16 + feature[f] * blocks + i];
            for (uint r = 0; r < ROWS; ++r) dots[r][f] = 0.0;
        }
        for (uint part = 0; part < 4; ++part) {
            for (uint r = 0; r < ROWS; ++r) {
                const vec4 low = x[x_at[r] + i * 8 + part], high = x[x_at[r] + i * 8 + part + 4];
                for (uint f = 0; f < FEATURES; ++f) {
                    const uint word = words[f][part];
                    dots[r][f] += dot(lower_weights(word), low) + dot(upper_weights(word), high);
                }
            }
        }
        for (uint f = 0; f < FEATURES; ++f) {
            const uint at = p.scale_offset + (feature[f] * blocks + i) / p.blocks;
            const float scale = scale_in(scales[at / 2], at);
            for (uint r = 0; r < ROWS; ++r) sum[r][f] += dots[r][f] * scale;
        }
    }
#else
    for (uint i = me; i < p.inner / VEC; i += SIZE) {
        NUMBERS numbers[ROWS];
        for (uint r = 0; r < ROWS; ++r) numbers[r] = x[x_at[r] + i];
        for (uint f = 0; f < FEATURES; ++f) {
            const NUMBERS weights = w[(p.w_offset + feature[f] * p.inner) / VEC + i];
            for (uint r = 0; r < ROWS; ++r) sum[r][f] += dot(weights, numbers[r]);
        }
    }
#endif
    for (uint r = 0; r < ROWS; ++r) {
        for (uint f = 0; f < FEATURES; ++f) sums[me][r * FEATURES + f] = sum[r][f];
    }
    barrier();
    for (uint k = me; k < ROWS * FEATURES; k += SIZE) {
        float total = 0.0;
        for (uint i = 0; i < SIZE; ++i) total += sums[i][k];
        store(total, first_row + k / FEATURES, first_feature + k % FEATURES);
    }
}
