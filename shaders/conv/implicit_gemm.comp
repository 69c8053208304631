#version 450
// Convolution by implicit GEMM (Chetlur et al., 2014): a matrix product whose second operand is never stored. Rows are
// filters, columns the output pixels of all images, and the window of a column is read from the image when it is
// multiplied. Pieces of both operands, DEPTH terms of the sums deep, go through shared memory, one piece while the next
// one is loaded. For GPUs.
//
// Where a term of the sums lies, relative to a pixel's window, is the same for all columns. It is written to a table
// once for each workgroup, so that the loop neither divides nor compares coordinates: a column knows in `outside` which
// coordinates of its window lie in the padding, a term in `Tap.touched` which of them it needs.
//
// The elements of a filter lie `tap_step` apart and its channels `channel_step`: a tap_step of -1 flips the filters,
// for the gradient of the input.
//
// Grid: COLUMNS pixels at a time in x, ROWS filters of a group in y, groups in z.
#extension GL_EXT_control_flow_attributes : require
#extension GL_GOOGLE_include_directive : require
#define UNROLL(i, n) [[unroll]] for (int i = 0; i < (n); ++i)
const uint WIDE = 8, HIGH = 8;  // invocations: 64, which fill a subgroup of any GPU
const uint INVOCATIONS = WIDE * HIGH;
const int DEPTH = 8;
layout(local_size_x = WIDE, local_size_y = HIGH) in;
// Constants, so that divisions by them become shifts or vanish.
layout(constant_id = 0) const uint kernel_d = 1;
layout(constant_id = 1) const uint kernel_h = 1;
layout(constant_id = 2) const uint kernel_w = 1;
layout(constant_id = 3) const int TM = 8;         // filters of an invocation, a multiple of 4
layout(constant_id = 4) const int TNV = 2;        // its pixels, in groups of four
layout(constant_id = 5) const uint VECTORS = 0;   // filters are not flipped, and can be read four terms at a time
layout(constant_id = 6) const uint WHOLE = 0;     // the number of terms is a multiple of DEPTH
layout(binding = 0) restrict readonly buffer X { float x[]; };
layout(binding = 1) restrict readonly buffer W { float w[]; };
layout(binding = 1) restrict readonly buffer W4 { vec4 w4[]; };
layout(binding = 2) readonly buffer Bias { float bias[]; };  // any buffer if there is no bias
layout(binding = 3) restrict writeonly buffer Y { float y[]; };
layout(binding = 3) restrict writeonly buffer Y4 { vec4 y4[]; };
layout(push_constant) uniform Push {
    uint stride_d, stride_h, stride_w, dilation_d, dilation_h, dilation_w;
    int padding_d, padding_h, padding_w;
    uint depth, height, width, out_depth, out_height, out_width;
    uint images, channels, filters;  // of a group
    uint x_offset, x_step, w_offset, group_step, filter_step;
    int channel_step, tap_step;
    uint has_bias, bias_offset, y_step;  // x_step and y_step lead from image to image
#ifdef EPILOGUE
    EPILOGUE_PUSH
#endif
} p;
#define FIRST_OPERAND 4
#include "epilogue.glsl"

const uint TAPS = kernel_d * kernel_h * kernel_w;
const uint ROWS = HIGH * TM, COLUMNS = WIDE * 4 * TNV;
// Each invocation loads neighbouring terms of one filter and of one column.
const int A_SHARE = int(ROWS * DEPTH / INVOCATIONS);
const int B_SHARE = int(COLUMNS * DEPTH / INVOCATIONS);
shared float a_piece[2 * DEPTH * ROWS];
shared float b_piece[2 * DEPTH * COLUMNS];

// Entry t is for term t of a channel, or of the channels behind it. The DEPTH entries from LAST on are for the last
// piece, which may have fewer terms.
const uint LAST = TAPS + DEPTH - 1;
const uint NEVER = 1u << 31;  // touched by no term of the sums, outside for all columns
struct Tap {
    uint at;       // in the image
    uint touched;  // coordinates of the window, one bit for each
};
shared Tap taps[LAST + DEPTH];
shared uint filter_at[LAST + DEPTH];

void fill_tables(uint inner) {
    const uint last_piece = (inner - 1) / DEPTH * DEPTH;
    for (uint i = gl_LocalInvocationIndex; i < LAST + DEPTH; i += INVOCATIONS) {
        const uint t = i < LAST ? i : last_piece % TAPS + (i - LAST);
        const uint channel = t / TAPS, tap = t % TAPS;
        const uint d = tap / (kernel_h * kernel_w), h = tap / kernel_w % kernel_h, c = tap % kernel_w;
        const uint row = (channel * p.depth + d * p.dilation_d) * p.height + h * p.dilation_h;
        const bool exists = i < LAST || last_piece + (i - LAST) < inner;
        taps[i].at = row * p.width + c * p.dilation_w;
        taps[i].touched = exists ? 1u << d | 1u << (kernel_d + h) | 1u << (kernel_d + kernel_h + c) : NEVER;
        filter_at[i] = exists ? channel * uint(p.channel_step) + tap * uint(p.tap_step) : 0;
    }
}

// The terms of the next piece that an invocation brings: from where, and what it has loaded.
uint outside;               // the coordinates of its column's window that lie in the padding
uint a_start;               // the filter's first term
uint tap = 0;               // the term within its channel with which the piece begins
uint a_channel, b_channel;  // where that channel of the filter and of the window lies
float a_next[A_SHARE], b_next[B_SHARE];
bool b_inside[B_SHARE];

// Load the terms of the piece that begins with term k, which may lie beyond the last one. Nothing is behind a branch,
// so that the loads are on their way while the piece before is multiplied: what does not exist is read from elsewhere,
// and replaced by 0 when it is staged.
void fetch(uint k, uint inner, uint plane, uint a_depth, uint b_depth) {
    const bool exists = k < inner;
    const uint entry = k + DEPTH < inner ? tap : LAST;
    const uint hidden = exists ? outside : ~0u;
    UNROLL(i, B_SHARE) {
        const Tap t = taps[entry + b_depth + i];
        b_inside[i] = (t.touched & hidden) == 0;
        b_next[i] = x[b_inside[i] ? b_channel + t.at : p.x_offset];
    }
    if (VECTORS != 0) {
        UNROLL(q, A_SHARE / 4) {
            const vec4 four = w4[(a_start + min(k + a_depth + 4 * q, inner - 4)) / 4];
            UNROLL(e, 4) a_next[4 * q + e] = four[e];
        }
    } else {
        const uint channel = exists ? a_channel : a_start;
        UNROLL(i, A_SHARE) a_next[i] = w[channel + filter_at[entry + a_depth + i]];
    }
    tap += DEPTH % TAPS;
    const bool wraps = tap >= TAPS;
    const uint channels = DEPTH / TAPS + (wraps ? 1 : 0);
    tap -= wraps ? TAPS : 0;
    a_channel += channels * uint(p.channel_step);
    b_channel += channels * plane;
}

void main() {
    const uint invocation = gl_LocalInvocationIndex;
    const uint group = gl_WorkGroupID.z;
    const uint pixels = p.out_depth * p.out_height * p.out_width;
    const uint columns = p.images * pixels;
    const uint inner = p.channels * TAPS;
    const uint plane = p.depth * p.height * p.width;
    fill_tables(inner);

    // Rows and columns beyond the last one repeat it and are not stored.
    const uint a_row = ROWS < INVOCATIONS ? invocation % ROWS : invocation;
    const uint a_depth = ROWS < INVOCATIONS ? invocation / ROWS * A_SHARE : 0;
    const uint b_column = COLUMNS < INVOCATIONS ? invocation % COLUMNS : invocation;
    const uint b_depth = COLUMNS < INVOCATIONS ? invocation / COLUMNS * B_SHARE : 0;
    a_start = p.w_offset + group * p.group_step + min(gl_WorkGroupID.y * ROWS + a_row, p.filters - 1) * p.filter_step;
    a_channel = a_start;
    const uint column = min(gl_WorkGroupID.x * COLUMNS + b_column, columns - 1);
    const uint pixel = column % pixels;
    const uint line = pixel / p.out_width;
    const uint front = line / p.out_height * p.stride_d - p.padding_d;  // negative ones wrap to large numbers
    const uint top = line % p.out_height * p.stride_h - p.padding_h;
    const uint left = pixel % p.out_width * p.stride_w - p.padding_w;
    b_channel = p.x_offset + column / pixels * p.x_step + group * p.channels * plane
              + (front * p.height + top) * p.width + left;
    outside = NEVER;
    UNROLL(i, kernel_d) outside |= front + i * p.dilation_d < p.depth ? 0 : 1u << i;
    UNROLL(i, kernel_h) outside |= top + i * p.dilation_h < p.height ? 0 : 1u << (kernel_d + i);
    UNROLL(i, kernel_w) outside |= left + i * p.dilation_w < p.width ? 0 : 1u << (kernel_d + kernel_h + i);

    vec4 sum[TM * TNV];
    UNROLL(i, TM) {
        const uint f = min(gl_WorkGroupID.y * ROWS + gl_LocalInvocationID.y * TM + i, p.filters - 1);
        const vec4 first = vec4(p.has_bias != 0 ? bias[p.bias_offset + group * p.filters + f] : 0.0);
        UNROLL(j, TNV) sum[i * TNV + j] = first;
    }
    barrier();
    fetch(0, inner, plane, a_depth, b_depth);
    uint piece = 0;
    for (uint k = 0; k < inner; k += DEPTH) {
        const uint a_to = (piece + a_depth) * ROWS + a_row, b_to = (piece + b_depth) * COLUMNS + b_column;
        UNROLL(i, A_SHARE) a_piece[a_to + i * ROWS] = WHOLE != 0 || k + a_depth + i < inner ? a_next[i] : 0.0;
        UNROLL(i, B_SHARE) b_piece[b_to + i * COLUMNS] = b_inside[i] ? b_next[i] : 0.0;
        barrier();
        fetch(k + DEPTH, inner, plane, a_depth, b_depth);
        const uint a_from = piece * ROWS + gl_LocalInvocationID.y * TM;
        const uint b_from = piece * COLUMNS + gl_LocalInvocationID.x * 4;
        UNROLL(kk, DEPTH) {
            float a[TM];
            UNROLL(i, TM) a[i] = a_piece[a_from + kk * ROWS + i];
            UNROLL(j, TNV) {
                vec4 b;
                UNROLL(e, 4) b[e] = b_piece[b_from + kk * COLUMNS + j * WIDE * 4 + e];
                UNROLL(i, TM) sum[i * TNV + j] += a[i] * b;
            }
        }
        piece ^= DEPTH;
    }

    UNROLL(j, TNV) {
        const uint first = gl_WorkGroupID.x * COLUMNS + (j * WIDE + gl_LocalInvocationID.x) * 4;
        UNROLL(i, TM) {
            const uint f = gl_WorkGroupID.y * ROWS + gl_LocalInvocationID.y * TM + i;
            const uint target = (group * p.filters + f) * pixels;
            if (f < p.filters && pixels % 4 == 0) {
                const uint at = first / pixels * p.y_step + target + first % pixels;
                if (first < columns) y4[at / 4] = epilogue4(sum[i * TNV + j], at, group * p.filters + f, 0);
            } else if (f < p.filters) {
                UNROLL(e, 4) {
                    const uint to = first + e;
                    const uint at = to / pixels * p.y_step + target + to % pixels;
                    if (to < columns) y[at] = epilogue(sum[i * TNV + j][e], at, group * p.filters + f, 0);
                }
            }
        }
    }
}
