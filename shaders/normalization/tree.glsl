// Sums over the invocations of a workgroup that have the same place among TX columns: SIZE / TX of them, always added
// in the same order. All invocations must come here; each gets the sum of its column.
shared float partial[SIZE];

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

#if FOURS
#define VALUE vec4
const uint WIDTH = 4;

float sum_of(vec4 a) {
    return (a.x + a.y) + (a.z + a.w);
}
#else
#define VALUE float
const uint WIDTH = 1;

float sum_of(float a) {
    return a;
}
#endif
