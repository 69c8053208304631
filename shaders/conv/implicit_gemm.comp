#version 450
// Convolution by implicit GEMM (Chetlur et al., 2014): a matrix product whose second operand is never stored. Rows are
// filters, columns the output pixels of all images, and the window of a column is read from the image when it is
// multiplied. Pieces of both operands, DEPTH terms of the sums deep, go through shared memory as in
// linalg/staged.glsl. For GPUs.
//
// The elements of a filter lie `tap_step` apart and its channels `channel_step`: a tap_step of -1 flips the filters,
// for the gradient of the input.
//
// Grid: COLUMNS pixels at a time in x, ROWS filters of a group in y, groups in z.
#extension GL_EXT_control_flow_attributes : require
#define UNROLL(i, n) [[unroll]] for (int i = 0; i < (n); ++i)
const uint WIDE = 16, HIGH = 8;  // invocations, of 8 filters and 4 pixels each
const uint ROWS = HIGH * 8, COLUMNS = WIDE * 4;
const uint DEPTH = 8;
const uint A_ROW = ROWS / 4 + 1, B_ROW = COLUMNS / 4 + 1;  // one vector of padding, against bank conflicts
layout(local_size_x = WIDE, local_size_y = HIGH) in;
// Constants, so that divisions by them become shifts or vanish.
layout(constant_id = 0) const uint kernel_d = 1;
layout(constant_id = 1) const uint kernel_h = 1;
layout(constant_id = 2) const uint kernel_w = 1;
layout(binding = 0) restrict readonly buffer X { float x[]; };
layout(binding = 1) restrict readonly buffer W { float w[]; };
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
} p;

const uint TAPS = kernel_d * kernel_h * kernel_w;
shared vec4 a_piece[2 * DEPTH * A_ROW];
shared vec4 b_piece[2 * DEPTH * B_ROW];

void main() {
    const uint invocation = gl_LocalInvocationIndex;
    const uint group = gl_WorkGroupID.z;
    const uint pixels = p.out_depth * p.out_height * p.out_width;
    const uint columns = p.images * pixels;
    const uint inner = p.channels * TAPS;
    const uint plane = p.depth * p.height * p.width;

    // Each invocation loads four neighbouring terms of one filter and of one column. Rows and columns beyond the last
    // one repeat it and are not stored.
    const uint a_row = invocation / 2, a_depth = invocation % 2 * 4;
    const uint a_start = p.w_offset + group * p.group_step
                       + min(gl_WorkGroupID.y * ROWS + a_row, p.filters - 1) * p.filter_step;
    const uint b_column = invocation % COLUMNS, b_depth = invocation / COLUMNS * 4;
    const uint column = min(gl_WorkGroupID.x * COLUMNS + b_column, columns - 1);
    const uint pixel = column % pixels;
    const uint line = pixel / p.out_width;
    const uint front = line / p.out_height * p.stride_d - p.padding_d;  // negative ones wrap to large numbers
    const uint top = line % p.out_height * p.stride_h - p.padding_h;
    const uint left = pixel % p.out_width * p.stride_w - p.padding_w;
    const uint b_start = p.x_offset + column / pixels * p.x_step + group * p.channels * plane;

    vec4 sum[8];
    UNROLL(i, 8) {
        const uint f = min(gl_WorkGroupID.y * ROWS + gl_LocalInvocationID.y * 8 + i, p.filters - 1);
        sum[i] = vec4(p.has_bias != 0 ? bias[p.bias_offset + group * p.filters + f] : 0.0);
    }
    uint piece = 0;
    for (uint k = 0; k < inner; k += DEPTH) {
        UNROLL(i, 4) {
            const uint term = k + a_depth + i;
            const uint at = min(term, inner - 1);
            const float value = w[a_start + at / TAPS * uint(p.channel_step) + at % TAPS * uint(p.tap_step)];
            a_piece[(piece * DEPTH + a_depth + i) * A_ROW + a_row / 4][a_row % 4] = term < inner ? value : 0.0;
        }
        UNROLL(i, 4) {
            const uint term = k + b_depth + i;
            const uint tap = term % TAPS;
            const uint d = front + tap / (kernel_h * kernel_w) * p.dilation_d;
            const uint h = top + tap / kernel_w % kernel_h * p.dilation_h;
            const uint c = left + tap % kernel_w * p.dilation_w;
            const bool inside = term < inner && d < p.depth && h < p.height && c < p.width;
            const float value = x[inside ? b_start + term / TAPS * plane + (d * p.height + h) * p.width + c : p.x_offset];
            b_piece[(piece * DEPTH + b_depth + i) * B_ROW + b_column / 4][b_column % 4] = inside ? value : 0.0;
        }
        barrier();
        UNROLL(kk, DEPTH) {
            const uint at = (piece * DEPTH + kk) * A_ROW + gl_LocalInvocationID.y * 2;
            const vec4 b = b_piece[(piece * DEPTH + kk) * B_ROW + gl_LocalInvocationID.x];
            UNROLL(i, 8) sum[i] += a_piece[at + i / 4][i % 4] * b;
        }
        piece ^= 1;
    }

    const uint first = gl_WorkGroupID.x * COLUMNS + gl_LocalInvocationID.x * 4;
    UNROLL(i, 8) {
        const uint f = gl_WorkGroupID.y * ROWS + gl_LocalInvocationID.y * 8 + i;
        const uint target = (group * p.filters + f) * pixels;
        if (f < p.filters && pixels % 4 == 0) {
            if (first < columns) y4[(first / pixels * p.y_step + target + first % pixels) / 4] = sum[i];
        } else if (f < p.filters) {
            UNROLL(e, 4) {
                const uint to = first + e;
                if (to < columns) y[to / pixels * p.y_step + target + to % pixels] = sum[i][e];
            }
        }
    }
}
