#version 450
// Softmax along the middle axis of x (outer, columns, inner). One workgroup takes one row: its
// invocations walk over the columns side by side and combine their results in a tree, so that
// the order of additions, and with it the result, is always the same.
const uint SIZE = 64;
layout(local_size_x = SIZE) in;
layout(binding = 0) readonly buffer X { float x[]; };
layout(binding = 1) writeonly buffer Y { float y[]; };
layout(push_constant) uniform Push {
    uint rows, columns, inner, x_offset;
} p;
shared float partial[SIZE];

// max() may drop a nan, and does so on some drivers.
float larger(float a, float b) {
    return b <= a ? a : (isnan(a) ? a : b);
}

float largest(float mine) {
    const uint lane = gl_LocalInvocationID.x;
    partial[lane] = mine;
    for (uint half_size = SIZE / 2; half_size > 0; half_size /= 2) {
        barrier();
        if (lane < half_size) partial[lane] = larger(partial[lane], partial[lane + half_size]);
    }
    barrier();
    const float result = partial[0];
    barrier();
    return result;
}

float total(float mine) {
    const uint lane = gl_LocalInvocationID.x;
    partial[lane] = mine;
    for (uint half_size = SIZE / 2; half_size > 0; half_size /= 2) {
        barrier();
        if (lane < half_size) partial[lane] += partial[lane + half_size];
    }
    barrier();
    const float result = partial[0];
    barrier();
    return result;
}

void main() {
    const uint lane = gl_LocalInvocationID.x;
    for (uint row = gl_WorkGroupID.x; row < p.rows; row += gl_NumWorkGroups.x) {
        const uint start = row / p.inner * p.columns * p.inner + row % p.inner;
        float high = uintBitsToFloat(0xff800000u);  // -inf
        for (uint c = lane; c < p.columns; c += SIZE) high = larger(high, x[p.x_offset + start + c * p.inner]);
        high = largest(high);
        if (isnan(high) || isinf(high)) {  // the same for all invocations; exp(nan) is anything on some drivers
            for (uint c = lane; c < p.columns; c += SIZE) y[start + c * p.inner] = uintBitsToFloat(0x7fc00000u);
            continue;
        }
        float sum = 0.0;
        for (uint c = lane; c < p.columns; c += SIZE) sum += exp(x[p.x_offset + start + c * p.inner] - high);
        sum = total(sum);
        for (uint c = lane; c < p.columns; c += SIZE) {
            y[start + c * p.inner] = exp(x[p.x_offset + start + c * p.inner] - high) / sum;
        }
    }
}
