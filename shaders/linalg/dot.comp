#version 450
// The dot product of two strided vectors. A workgroup adds the products of one slice in shared memory and writes their
// sum; reduce.comp joins the slices.
const uint SIZE = 128;
const uint BLOCK = 64;  // steps of an invocation that are summed apart, so that long sums keep their digits
layout(local_size_x = SIZE) in;
layout(binding = 0) readonly buffer X { float x[]; };
layout(binding = 1) readonly buffer Y { float y[]; };
layout(binding = 2) writeonly buffer Z { float z[]; };
shared float sums[SIZE];
layout(push_constant) uniform Push {
    uint size, slice;
    uint x_offset, x_stride, y_offset, y_stride;
} p;

void main() {
    const uint me = gl_LocalInvocationID.x;
    const uint first = gl_WorkGroupID.x * p.slice;
    const uint last = min(first + p.slice, p.size);
    float sum = 0.0;
    for (uint i = first + me; i < last;) {
        float block = 0.0;
        const uint stop = min(last, i + BLOCK * SIZE);
        for (; i < stop; i += SIZE) block += x[p.x_offset + i * p.x_stride] * y[p.y_offset + i * p.y_stride];
        sum += block;
    }
    sums[me] = sum;
    for (uint reach = SIZE / 2; reach > 0; reach /= 2) {
        barrier();
        if (me < reach) sums[me] += sums[me + reach];
    }
    if (me == 0) z[gl_WorkGroupID.x] = sums[0];
}
