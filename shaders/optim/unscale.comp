#version 450
#extension GL_GOOGLE_include_directive : require
#include "optim/multi_tensor.glsl"
#include "math/special.glsl"
// Multiplies many tensors by one number, in place, and sets another to 1 if an element was infinite or nan.
layout(binding = 1) readonly buffer Factor { float factor[]; };
layout(binding = 2) writeonly buffer Found { float found[]; };
layout(binding = 3) buffer X { float x[]; };
layout(push_constant) uniform Push {
    uint first_row, last_row, workgroup_elements, factor_offset, found_offset;
} c;

void main() {
    const Row row = row_of_workgroup(c.first_row, c.last_row);
    const uint start = (gl_WorkGroupID.x - row.first_workgroup) * c.workgroup_elements;
    const uint end = min(row.n, start + c.workgroup_elements);
    const float number = factor[c.factor_offset];
    bool has_infinite = false;
    for (uint i = start + gl_LocalInvocationID.x; i < end; i += SIZE) {
        const float value = x[row.offsets[0] + i];
        if (!is_finite(value)) has_infinite = true;
        x[row.offsets[0] + i] = number == 1.0 ? value : value * number;
    }
    if (has_infinite) found[c.found_offset] = 1.0;
}
