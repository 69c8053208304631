#version 450
#extension GL_GOOGLE_include_directive : require
#include "multi_tensor.glsl"
#include "math/exponential.glsl"
#include "math/special.glsl"
// Adam, as in adam.comp, of many parameters whose states have buffers of their own, as PyTorch's have; the number of
// steps of each is read from memory. MAXIMUM: AMSGrad.
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
        const float value = parameter[p_at] * c.shrink;
        float g = c.sign * gradient[row.offsets[0] + i];
        if (c.weight_decay != 0.0) g += c.weight_decay * value;
        const float mean = means[m_at] + c.one_minus_beta1 * (g - means[m_at]);
        float square = c.beta2 * squares[s_at] + c.one_minus_beta2 * g * g;
        means[m_at] = mean;
        squares[s_at] = square;
#if MAXIMUM
        square = larger(square, largest[row.offsets[3] + i]);
        largest[row.offsets[3] + i] = square;
#endif
        parameter[p_at] = value - step_size * (mean / (sqrt(square) / root_correction2 + c.eps));
    }
}
