#version 450
// y = the number of indices that are not negative. One workgroup.

layout(local_size_x = 128) in;
layout(binding = 0) readonly buffer Index { int index[]; };
layout(binding = 1) writeonly buffer Y { float y[]; };
layout(push_constant) uniform Push {
    uint n;
} p;

shared uint total;

void main() {
    if (gl_LocalInvocationID.x == 0) total = 0;
    barrier();
    uint count = 0;
    for (uint j = gl_LocalInvocationID.x; j < p.n; j += gl_WorkGroupSize.x) count += index[j] >= 0 ? 1 : 0;
    atomicAdd(total, count);
    barrier();
    if (gl_LocalInvocationID.x == 0) y[0] = float(total);
}
