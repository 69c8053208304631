#version 450
// The coordinates of positions in a tensor of p.axes axes, as int64: y[i, axis], or with p.by_axis y[axis, i].
const uint RANK = 8;
layout(local_size_x = 128) in;
layout(binding = 0) readonly buffer X { uint x[]; };
layout(binding = 1) writeonly buffer Y { uvec2 y[]; };
layout(push_constant) uniform Push {
    uint n, axes, by_axis;
    uint sizes[RANK];
} p;

void main() {
    const uint step = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
    for (uint i = gl_GlobalInvocationID.x; i < p.n; i += step) {
        uint rest = x[i];
        for (uint axis = p.axes; axis-- > 0;) {
            const uint quotient = rest / p.sizes[axis];
            const uint at = p.by_axis != 0 ? axis * p.n + i : i * p.axes + axis;
            y[at] = uvec2(rest - quotient * p.sizes[axis], 0);
            rest = quotient;
        }
    }
}
