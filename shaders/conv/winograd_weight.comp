#version 450
// Transforms the gradient of transformed filters, as winograd_filter.comp makes them, to that of the 3x3 filters:
// matrix `position` of U, of SIDE * SIDE, has a row for each filter and a column for each channel.
//
// Where that is not finite, the first element of U is made undefined, for winograd_weight_repair.comp to find.
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
        float line[SIDE], found[3];
        UNROLL(i, SIDE) line[i] = lines[i][j];
        transform_back(line, found);
        UNROLL(i, 3) {
            w[target + i * 3 + j] = found[i];
            sum += found[i];
        }
    }
    if (!is_finite(sum)) u[start] = UNDEFINED;
}
