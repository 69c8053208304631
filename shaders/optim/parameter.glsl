// What every kernel of an optimizer does for each element of a parameter: change it and the STATES values of the
// optimizer's state by the gradient. The values lie one after another, each for all elements.
//
// The source that includes this has defined CONSTANTS, the numbers of a step, and defines change(). With TOGETHER
// a dispatch does that for many parameters.
#if TOGETHER
#include "multi_tensor.glsl"
layout(push_constant) uniform Push {
    uint first_row, last_row, each;
    CONSTANTS
} c;
#else
layout(local_size_x = 128) in;
layout(push_constant) uniform Push {
    uint n, p_offset, g_offset;
    CONSTANTS
} c;
#endif

layout(binding = TOGETHER) readonly buffer Gradient { float gradient[]; };
#if STATES > 0
layout(binding = TOGETHER + 1) buffer State { float state[]; };
layout(binding = TOGETHER + 2) buffer Parameter { float parameter[]; };
#else
layout(binding = TOGETHER + 1) buffer Parameter { float parameter[]; };
#endif

struct Element {
    float p, g;
#if STATES > 0
    float s[STATES];
#endif
};

void change(inout Element e);

// The state has a stride of n between an element's values.
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
#if TOGETHER
    const Row row = row_of_workgroup(c.first_row, c.last_row);
    const uint g_at = row.at[0], s_at = row.at[1], p_at = row.at[STATES > 0 ? 2 : 1];
    const uint start = (gl_WorkGroupID.x - row.first) * c.each;
    const uint end = min(row.n, start + c.each);
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
