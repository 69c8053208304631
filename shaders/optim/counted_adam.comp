#version 450
#extension GL_GOOGLE_include_directive : require
#include "optim/multi_tensor.glsl"
#include "math/exponential.glsl"
#include "math/special.glsl"
// Adam of many parameters whose states have buffers of their own, as PyTorch's have; the number of steps of each is read
// from memory. MAXIMUM: AMSGrad. CHANGE: the rule (dl4all/optim/adam.py).
layout(push_constant) uniform Push {
    uint first_row, last_row, workgroup_elements;
    float sign, weight_decay, shrink, one_minus_beta1, beta2, one_minus_beta2, lr, log_beta1, log_beta2, eps;
} c;

layout(binding = 1) readonly buffer Gradient { float gradient[]; };
layout(binding = 2) buffer Mean { float means[]; };
layout(binding = 3) buffer Square { float squares[]; };
#if MAXIMUM
layout(binding = 4) buffer Largest { float largest[]; };
#endif
layout(binding = 4 + MAXIMUM) readonly buffer Step { float steps[]; };
layout(binding = 5 + MAXIMUM) buffer Parameter { float parameter[]; };

struct Element {
    float p, g, s[2 + MAXIMUM];
};

void main() {
    const Row row = row_of_workgroup(c.first_row, c.last_row);
    const uint start = (gl_WorkGroupID.x - row.first_workgroup) * c.workgroup_elements;
    const uint end = min(row.n, start + c.workgroup_elements);
    const float step = steps[row.offsets[3 + MAXIMUM]];
    // 1 - beta^step without the rounding of a power close to 1.
    const float step_size = c.lr / -expm1f(step * c.log_beta1);
    const float root_correction2 = sqrt(-expm1f(step * c.log_beta2));
    for (uint i = start + gl_LocalInvocationID.x; i < end; i += SIZE) {
        const uint p_at = row.offsets[4 + MAXIMUM] + i, m_at = row.offsets[1] + i, s_at = row.offsets[2] + i;
        Element e;
        e.p = parameter[p_at];
        e.g = gradient[row.offsets[0] + i];
        e.s[0] = means[m_at];
        e.s[1] = squares[s_at];
#if MAXIMUM
        e.s[2] = largest[row.offsets[3] + i];
#endif
        CHANGE
        means[m_at] = e.s[0];
        squares[s_at] = e.s[1];
#if MAXIMUM
        largest[row.offsets[3] + i] = e.s[2];
#endif
        parameter[p_at] = e.p;
    }
}
