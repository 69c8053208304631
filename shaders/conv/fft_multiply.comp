#version 450
// Sums of products of transforms, element by element: for each group, row and column of maps the sum over `inner` of A,
// which has rows, times the conjugate of B, which has columns; with sign -1 times B itself. All sizes and steps count
// maps, which have `size` pairs of complex numbers. An invocation computes ROWS x COLUMNS sums.
//
// Grid: pairs over the invocations of x, rows in y, columns of all groups in z.
#extension GL_EXT_control_flow_attributes : require
layout(local_size_x = 64) in;
layout(constant_id = 0) const uint ROWS = 1;
layout(constant_id = 1) const uint COLUMNS = 1;
layout(binding = 0) restrict readonly buffer A { vec4 a[]; };
layout(binding = 1) restrict readonly buffer B { vec4 b[]; };
layout(binding = 2) restrict buffer Y { vec4 y[]; };
layout(push_constant) uniform Push {
    uint size, rows, columns, inner;
    uint a_row, a_inner, a_group, b_column, b_inner, b_group, y_row, y_column, y_group;
    uint accumulate;  // add to the content of Y
    float sign;
} p;
#define UNROLL(name, count) [[unroll]] for (uint name = 0; name < (count); ++name)

void main() {
    const uint i = gl_GlobalInvocationID.x;
    if (i >= p.size) return;
    const uint tiles = (p.columns + COLUMNS - 1) / COLUMNS;
    const uint group = gl_WorkGroupID.z / tiles;
    uint from_a[ROWS], from_b[COLUMNS];
    vec4 sum[ROWS][COLUMNS];
    UNROLL(r, ROWS) {
        const uint row = min(gl_WorkGroupID.y * ROWS + r, p.rows - 1);
        from_a[r] = (group * p.a_group + row * p.a_row) * p.size + i;
        UNROLL(c, COLUMNS) sum[r][c] = vec4(0.0);
    }
    UNROLL(c, COLUMNS) {
        const uint column = min(gl_WorkGroupID.z % tiles * COLUMNS + c, p.columns - 1);
        from_b[c] = (group * p.b_group + column * p.b_column) * p.size + i;
    }
    const uint step_a = p.a_inner * p.size, step_b = p.b_inner * p.size;
    for (uint k = 0; k < p.inner; ++k) {
        vec4 left[ROWS];
        UNROLL(r, ROWS) left[r] = a[from_a[r] + k * step_a];
        UNROLL(c, COLUMNS) {
            const vec4 right = b[from_b[c] + k * step_b] * vec4(1.0, p.sign, 1.0, p.sign);
            UNROLL(r, ROWS) {
                sum[r][c] += left[r] * right.xxzz;
                sum[r][c] += left[r].yxwz * vec4(right.y, -right.y, right.w, -right.w);
            }
        }
    }
    UNROLL(r, ROWS) UNROLL(c, COLUMNS) {
        const uint row = gl_WorkGroupID.y * ROWS + r, column = gl_WorkGroupID.z % tiles * COLUMNS + c;
        if (row < p.rows && column < p.columns) {
            const uint target = (group * p.y_group + row * p.y_row + column * p.y_column) * p.size + i;
            y[target] = p.accumulate != 0 ? y[target] + sum[r][c] : sum[r][c];
        }
    }
}
