#version 450
// Transforms 3x3 filters for Winograd's convolution: matrix `position` of the SIDE * SIDE in U has that element of
// each transformed filter, a row for each filter and a column for each channel; rows are `pitch` apart. With
// FLIP=1, for the gradient of the convolution's input, filters are flipped and the matrices are transposed.
//
// Grid: columns over the invocations of x, rows in y.
#extension GL_GOOGLE_include_directive : require
#include "winograd.glsl"
layout(local_size_x_id = 0, local_size_y_id = 1) in;
layout(binding = 0) restrict readonly buffer W { float w[]; };
layout(binding = 1) restrict writeonly buffer U { float u[]; };
layout(push_constant) uniform Push {
    uint rows, columns, pitch, position_step, w_offset;
} p;

void main() {
    const uint column = gl_GlobalInvocationID.x;
    const uint row = gl_GlobalInvocationID.y;
    if (column >= p.columns || row >= p.rows) return;
#if FLIP
    const uint source = p.w_offset + (column * p.rows + row) * 9;
#define TAP(i, j) (8 - (i) * 3 - (j))
#else
    const uint source = p.w_offset + (row * p.columns + column) * 9;
#define TAP(i, j) ((i) * 3 + (j))
#endif
    float columns[3][SIDE];
    UNROLL(j, 3) transform_filter(w[source + TAP(0, j)], w[source + TAP(1, j)], w[source + TAP(2, j)], columns[j]);
    uint target = row * p.pitch + column;
    UNROLL(i, SIDE) {
        float line[SIDE];
        transform_filter(columns[0][i], columns[1][i], columns[2][i], line);
        UNROLL(j, SIDE) {
            u[target] = line[j];
            target += p.position_step;
        }
    }
}
