// The largest of, and the sum over, the invocations of a workgroup that have the same place among TX columns: SIZE / TX
// of them, always in the same order. All invocations must come here; each gets the result of its column.
#define MINUS_INFINITY uintBitsToFloat(0xff800000u)
#define NOT_A_NUMBER uintBitsToFloat(0x7fc00000u)
shared float partial[SIZE];

// max() may drop a nan, and does so on some drivers.
float larger(float a, float b) {
    return b <= a ? a : (isnan(a) ? a : b);
}

float largest(float mine) {
    const uint lane = gl_LocalInvocationID.x;
    partial[lane] = mine;
    for (uint half_size = SIZE / 2; half_size >= TX; half_size /= 2) {
        barrier();
        if (lane < half_size) partial[lane] = larger(partial[lane], partial[lane + half_size]);
    }
    barrier();
    const float result = partial[lane % TX];
    barrier();
    return result;
}

float total(float mine) {
    const uint lane = gl_LocalInvocationID.x;
    partial[lane] = mine;
    for (uint half_size = SIZE / 2; half_size >= TX; half_size /= 2) {
        barrier();
        if (lane < half_size) partial[lane] += partial[lane + half_size];
    }
    barrier();
    const float result = partial[lane % TX];
    barrier();
    return result;
}
