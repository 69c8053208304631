#version 450
// The sum of the products of two strided vectors. Two ways:
//
//  ATOMIC=0  one state for each slice, added up in shared memory; reduce.comp joins them
//  ATOMIC=1  every invocation adds what it has to z[0], which was 0. The order is not the same each time, nor are
//            the last bits: only benchmarks/reductions.py uses it, to see what the other way is worth.
const uint SIZE = 128;
const uint BLOCK = 64;  // steps of an invocation that are summed apart, so that long sums keep their digits
layout(local_size_x = SIZE) in;
layout(binding = 0) readonly buffer X { float x[]; };
layout(binding = 1) readonly buffer Y { float y[]; };
#if ATOMIC
layout(binding = 2) coherent buffer Z { uint z[]; };
#else
layout(binding = 2) writeonly buffer Z { float z[]; };
shared float sums[SIZE];
#endif
layout(push_constant) uniform Push {
    uint size, slice;
    uint x_offset, x_stride, y_offset, y_stride;
} p;

#if ATOMIC
// By comparing and swapping: adding floats is no part of Vulkan 1.1.
void add(float value) {
    uint seen = z[0];
    for (;;) {
        const uint found = atomicCompSwap(z[0], seen, floatBitsToUint(uintBitsToFloat(seen) + value));
        if (found == seen) return;
        seen = found;
    }
}
#endif

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
#if ATOMIC
    add(sum);
#else
    sums[me] = sum;
    for (uint reach = SIZE / 2; reach > 0; reach /= 2) {
        barrier();
        if (me < reach) sums[me] += sums[me + reach];
    }
    if (me == 0) z[gl_WorkGroupID.x] = sums[0];
#endif
}
