// The main function of optimizer kernels: updates each element of a parameter, and the STATES values of its state, by
// the gradient. The state holds one array after another, each with n elements.
//
// The including source defines CONSTANTS, the constants of a step, before, and change() after. With MULTI_TENSOR one
// dispatch updates many parameters.
#if MULTI_TENSOR
#include "optim/multi_tensor.glsl"
layout(push_constant) uniform Push {
    uint first_row, last_row, workgroup_elements;
    CONSTANTS
} c;
#else
layout(local_size_x = 128) in;
layout(push_constant) uniform Push {
    uint n, p_offset, g_offset;
    CONSTANTS
} c;
#endif

layout(binding = MULTI_TENSOR) readonly buffer Gradient { float gradient[]; };
#if STATES > 0
layout(binding = MULTI_TENSOR + 1) buffer State { float state[]; };
layout(binding = MULTI_TENSOR + 2) buffer Parameter { float parameter[]; };
#else
layout(binding = MULTI_TENSOR + 1) buffer Parameter { float parameter[]; };
#endif

struct Element {
    float p, g;
#if STATES > 0
    float s[STATES];
#endif
};

void change(inout Element e);

// The values of an element's state are n apart.
void change_at(uint p_at, uint g_at, uint s_at, uint n) {
    Element e;
    e.p = parameter[p_at];
    e.g = gradient[g_at];
#if STATES > 0
    for (uint k = 0; k < STATES; k++) e.s[k] = state[s_at + k * n];
#endif
    change(e);
#if STATES > 0
    for (uint k = 0; k < STATES; k++) state[s_at + k * n] = e.s[k];
#endif
    parameter[p_at] = e.p;
}

void main() {
#if MULTI_TENSOR
    const Row row = row_of_workgroup(c.first_row, c.last_row);
    const uint g_at = row.offsets[0], s_at = row.offsets[1], p_at = row.offsets[STATES > 0 ? 2 : 1];
    const uint start = (gl_WorkGroupID.x - row.first_workgroup) * c.workgroup_elements;
    const uint end = min(row.n, start + c.workgroup_elements);
    for (uint i = start + gl_LocalInvocationID.x; i < end; i += SIZE) {
        change_at(p_at + i, g_at + i, s_at + i, row.n);
    }
#else
    const uint step = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
    for (uint i = gl_GlobalInvocationID.x; i < c.n; i += step) {
        change_at(c.p_offset + i, c.g_offset + i, i, c.n);
    }
#endif
}
