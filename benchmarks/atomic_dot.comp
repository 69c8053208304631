#version 450
// The dot product of two strided vectors: every invocation adds its sum to z[0], which was 0, by compare and swap. The
// order differs from run to run, and so do the last bits; linalg/dot.comp adds in shared memory instead.
const uint SIZE = 128;
const uint BLOCK = 64;  // steps of an invocation that are summed apart, so that long sums keep their digits
layout(local_size_x = SIZE) in;
layout(binding = 0) readonly buffer X { float x[]; };
layout(binding = 1) readonly buffer Y { float y[]; };
layout(binding = 2) coherent buffer Z { uint z[]; };
layout(push_constant) uniform Push {
    uint size, slice;
    uint x_offset, x_stride, y_offset, y_stride;
} p;

// Adding floats atomically is no part of Vulkan 1.1.
void add(float value) {
    uint expected = z[0];
    for (;;) {
        const uint old = atomicCompSwap(z[0], expected, floatBitsToUint(uintBitsToFloat(expected) + value));
        if (old == expected) return;
        expected = old;
    }
}

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
    add(sum);
}
