#version 450
// Transforms the gradient of transformed filters, in the layout of winograd_filter.comp, to the gradient of the 3x3
// filters: matrix `position` of the SIDE * SIDE in U has a row for each filter and a column for each channel.
//
// Where the gradient is not finite, the first element in U is set to nan, which tells winograd_weight_repair.comp
// to compute it again.
//
// Grid: columns over the invocations of x, rows in y.
#extension GL_GOOGLE_include_directive : require
#include "math/special.glsl"
#include "winograd.glsl"
layout(local_size_x_id = 0, local_size_y_id = 1) in;
layout(binding = 0) restrict buffer U { float u[]; };
layout(binding = 1) restrict writeonly buffer W { float w[]; };
layout(push_constant) uniform Push {
    uint rows, columns, pitch, position_step;
} p;

void main() {
    const uint column = gl_GlobalInvocationID.x;
    const uint row = gl_GlobalInvocationID.y;
    if (column >= p.columns || row >= p.rows) return;
    const uint start = row * p.pitch + column;
    uint source = start;
    float lines[SIDE][3];
    UNROLL(i, SIDE) {
        float line[SIDE];
        UNROLL(j, SIDE) {
            line[j] = u[source];
            source += p.position_step;
        }
        transform_back(line, lines[i]);
    }
    const uint target = (row * p.columns + column) * 9;
    float sum = 0.0;
    UNROLL(j, 3) {
        float line[SIDE], gradient_column[3];
        UNROLL(i, SIDE) line[i] = lines[i][j];
        transform_back(line, gradient_column);
        UNROLL(i, 3) {
            w[target + i * 3 + j] = gradient_column[i];
            sum += gradient_column[i];
        }
    }
    if (!is_finite(sum)) u[start] = NAN;
}
