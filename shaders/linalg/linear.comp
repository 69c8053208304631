#version 450
// y[r, f] = sum over i of x[r, i] * w[f, i] (+ bias[f]). The rows of both operands lie along the sum, so each weight is
// read once for ROWS rows. One workgroup computes FEATURES features: its invocations read neighbours, VEC numbers at a
// time, those of x once for all features, and their sums are added in shared memory.
//
// FORMAT is 0 for a w of floats, or the layout of its weights in few bits (packed.glsl); p.blocks of their blocks share
// scales, within a row.
#extension GL_GOOGLE_include_directive : require
layout(local_size_x = SIZE) in;
#if VEC == 4
#define NUMBERS vec4
#else
#define NUMBERS float
#endif
layout(binding = 0) readonly buffer X { NUMBERS x[]; };
#if FORMAT
layout(binding = 1) readonly buffer W { uint w[]; };
layout(binding = 2) readonly buffer Scales { uint scales[]; };
#include "packed.glsl"
#else
layout(binding = 1) readonly buffer W { NUMBERS w[]; };
#endif
#define NEXT (2 + (FORMAT == 0 ? 0 : 1))
#if BIAS
layout(binding = NEXT) readonly buffer Bias { float bias[]; };
#endif
layout(binding = NEXT + BIAS) writeonly buffer Y { float y[]; };
layout(push_constant) uniform Push {
    uint rows, features, inner, x_offset, w_offset;
#if FORMAT
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
#if FORMAT
    const uint units = p.inner / 32, blocks = units / UNITS;
    for (uint i = me; i < units; i += SIZE) {
        const uint unit = i % UNITS;
        uint block[FEATURES];
        DOTS dots[ROWS][FEATURES];
        float inputs[ROWS];
        for (uint r = 0; r < ROWS; ++r) {
            for (uint f = 0; f < FEATURES; ++f) dots[r][f] = DOTS(0.0);
            inputs[r] = 0.0;
        }
        for (uint f = 0; f < FEATURES; ++f) block[f] = p.w_offset / 4 + (feature[f] * blocks + i / UNITS) * WORDS;
        for (uint part = 0; part < 4; ++part) {
            uvec2 numbers[FEATURES];
            for (uint f = 0; f < FEATURES; ++f) numbers[f] = numbers_in(block[f], unit, part);
            for (uint r = 0; r < ROWS; ++r) {
                const vec4 low = x[x_at[r] + i * 8 + part], high = x[x_at[r] + i * 8 + part + 4];
                if (OFFSET == 1) inputs[r] += dot(low + high, vec4(1.0));
                for (uint f = 0; f < FEATURES; ++f) {
                    const vec4 first = weights_in(numbers[f].x), second = weights_in(numbers[f].y);
#if HALVES == 2
                    dots[r][f] += vec2(dot(first, low), dot(second, high));
#else
                    dots[r][f] += dot(first, low) + dot(second, high);
#endif
                }
            }
        }
        for (uint f = 0; f < FEATURES; ++f) {
            const uint scale = p.scale_offset + (feature[f] * blocks + i / UNITS) / p.blocks * SCALES;
            const DOTS factors = DOTS(scales_of(block[f], scale, unit));
            const float offset = offset_of(block[f], scale, unit);
            for (uint r = 0; r < ROWS; ++r) {
                sum[r][f] += dot(dots[r][f], factors);
                if (OFFSET == 1) sum[r][f] -= offset * inputs[r];
            }
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
