#version 450
// Direct convolution, without a matrix of unrolled windows: an invocation computes four neighbouring pixels of a row
// for FILTERS filters, and reads the pixels of the image that a row of the filters meets once for all of them. For few
// channels, where a matrix product has too little to multiply.
//
// The elements of a filter lie `tap_step` apart and its channels `channel_step`: a tap_step of -1 flips the filters,
// for the gradient of the input.
//
//  SUBGROUPS=1  for llvmpipe, which loads for one lane at a time: each lane of a subgroup of 8 reads a part of the
//               filters' elements, and the lanes exchange them by shuffles
//  SUBGROUPS=0  every invocation reads all elements
//
// Grid: groups of four pixels of a row over the invocations of x, blocks of filters in y, images in z.
#extension GL_EXT_control_flow_attributes : require
#extension GL_GOOGLE_include_directive : require
#if SUBGROUPS
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#endif
#define UNROLL(i, n) [[unroll]] for (int i = 0; i < (n); ++i)
layout(constant_id = 0) const int FILTERS = 8;
layout(constant_id = 1) const int kernel_w = 3;
layout(constant_id = 2) const int stride_w = 1;
layout(constant_id = 3) const int dilation_w = 1;
layout(constant_id = 4) const int padding_w = 0;
layout(constant_id = 5) const uint VECTORS = 0;  // the image is read four elements at a time, where the pixels lie
layout(local_size_x_id = 6) in;
layout(binding = 0) restrict readonly buffer X { float x[]; };
layout(binding = 0) restrict readonly buffer X4 { vec4 x4[]; };
layout(binding = 1) restrict readonly buffer W { float w[]; };
layout(binding = 2) readonly buffer Bias { float bias[]; };  // any buffer if there is no bias
layout(binding = 3) restrict writeonly buffer Y { float y[]; };
layout(binding = 3) restrict writeonly buffer Y4 { vec4 y4[]; };
layout(push_constant) uniform Push {
    uint kernel_d, kernel_h, stride_d, stride_h, dilation_d, dilation_h;
    int padding_d, padding_h;
    uint depth, height, width, out_depth, out_height, out_width;
    uint channels, filters, blocks;  // of a group, and its blocks of filters
    uint x_offset, x_step, w_offset, group_step, filter_step;
    int channel_step, tap_step;
    uint has_bias, bias_offset, y_offset, y_step;  // x_step and y_step lead from image to image
#ifdef EPILOGUE
    EPILOGUE_PUSH
#endif
} p;
#define FIRST_OPERAND 4
#include "epilogue.glsl"

const int SPAN = 3 * stride_w + (kernel_w - 1) * dilation_w + 1;  // elements of a row that four pixels meet

void main() {
    const uint quads_per_row = (p.out_width + 3) / 4;
    const uint quads = quads_per_row * p.out_height * p.out_depth;
    const uint group = gl_WorkGroupID.y / p.blocks;
    const uint first = gl_WorkGroupID.y % p.blocks * FILTERS;
    // Invocations past the end repeat the last one and store nothing.
    const uint quad = min(gl_GlobalInvocationID.x, quads - 1);
    const uint line = quad / quads_per_row;
    const uint column = quad % quads_per_row * 4;
    const int left = int(column) * stride_w - padding_w;
    const int top = int(line % p.out_height * p.stride_h) - p.padding_h;
    const int front = int(line / p.out_height * p.stride_d) - p.padding_d;

    uint start = p.x_offset + gl_WorkGroupID.z * p.x_step + group * p.channels * p.depth * p.height * p.width;
    uint w_start = p.w_offset + group * p.group_step;
    bool in_columns[SPAN];
    UNROLL(i, SPAN) in_columns[i] = uint(left + i) < p.width;
#if SUBGROUPS
    const int LANE_WEIGHTS = (FILTERS * kernel_w + 7) / 8;
    uint lane_weight_at[LANE_WEIGHTS];
    UNROLL(h, LANE_WEIGHTS) {
        const int t = min(h * 8 + int(gl_SubgroupInvocationID), FILTERS * kernel_w - 1);
        lane_weight_at[h] = min(first + t / kernel_w, p.filters - 1) * p.filter_step + uint(t % kernel_w * p.tap_step);
    }
#else
    uint filter_at[FILTERS];
    UNROLL(f, FILTERS) filter_at[f] = min(first + f, p.filters - 1) * p.filter_step;
#endif
    vec4 sum[FILTERS];
    UNROLL(f, FILTERS) {
        const uint at = group * p.filters + min(first + f, p.filters - 1);
        sum[f] = vec4(p.has_bias != 0 ? bias[p.bias_offset + at] : 0.0);
    }

    for (uint channel = 0; channel < p.channels; ++channel) {
        uint w_at = w_start;
        for (uint a = 0; a < p.kernel_d; ++a) {
            const uint d = uint(front + int(a * p.dilation_d));
            for (uint b = 0; b < p.kernel_h; ++b) {
                const uint h = uint(top + int(b * p.dilation_h));
                const bool in_rows = d < p.depth && h < p.height;
                const uint row = start + (d * p.height + h) * p.width + uint(left);
                // Loads from a valid address and a select: no load is behind a branch.
                float span[SPAN];
                UNROLL(v, stride_w) {
                    if (VECTORS != 0) {
                        const uint at = column * stride_w + 4 * v;
                        const bool in_image = in_rows && at < p.width;
                        const vec4 vector = x4[(in_image ? row + padding_w + 4 * v : p.x_offset) / 4];
                        UNROLL(i, 4) {
                            const int to = padding_w + 4 * v + i;
                            if (to < SPAN) span[min(to, SPAN - 1)] = in_image ? vector[i] : 0.0;
                        }
                    }
                }
                UNROLL(i, SPAN) {
                    if (VECTORS == 0 || i < padding_w || i >= padding_w + 4 * stride_w) {
                        const bool in_image = in_rows && in_columns[i];
                        const float value = x[in_image ? row + i : p.x_offset];
                        span[i] = in_image ? value : 0.0;
                    }
                }
#if SUBGROUPS
                float lane_weights[LANE_WEIGHTS];
                UNROLL(h, LANE_WEIGHTS) lane_weights[h] = w[w_at + lane_weight_at[h]];
#endif
                UNROLL(f, FILTERS) UNROLL(c, kernel_w) {
#if SUBGROUPS
                    const float weight = subgroupShuffle(lane_weights[(f * kernel_w + c) / 8], uint((f * kernel_w + c) % 8));
#else
                    const float weight = w[w_at + filter_at[f] + uint(c * p.tap_step)];
#endif
                    const int at = c * dilation_w;
                    sum[f] += weight * vec4(span[at], span[at + stride_w], span[at + 2 * stride_w], span[at + 3 * stride_w]);
                }
                w_at += uint(kernel_w * p.tap_step);
            }
        }
        start += p.depth * p.height * p.width;
        w_start += uint(p.channel_step);
    }

    if (gl_GlobalInvocationID.x >= quads) return;
    const uint pixels = p.out_depth * p.out_height * p.out_width;
    const uint target = p.y_offset + gl_WorkGroupID.z * p.y_step + (group * p.filters + first) * pixels
                      + line * p.out_width + column;
    if (p.out_width % 4 == 0) {
        UNROLL(f, FILTERS) {
            const uint at = target + f * pixels;
            if (first + f < p.filters) y4[at / 4] = epilogue4(sum[f], at, group * p.filters + first + f, 0);
        }
    } else {
        UNROLL(f, FILTERS) UNROLL(e, 4) {
            const uint at = target + f * pixels + e;
            if (first + f < p.filters && column + e < p.out_width)
                y[at] = epilogue(sum[f][e], at, group * p.filters + first + f, 0);
        }
    }
}
