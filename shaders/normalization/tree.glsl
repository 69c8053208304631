// Sum over the invocations of a workgroup that share a column, of which there are COLUMNS: SIZE / COLUMNS values, always
// added in the same order. All invocations must call this; each gets the sum of its column. ARITHMETIC: there is one column,
// and subgroups add up their own values.
shared float partial[SIZE];

#if ARITHMETIC
float total(float value) {
    const float mine = subgroupAdd(value);
    if (gl_NumSubgroups == 1) return mine;
    barrier();
    if (subgroupElect()) partial[gl_SubgroupID] = mine;
    barrier();
    float result = 0.0;
    for (uint s = 0; s < gl_NumSubgroups; ++s) result += partial[s];
    return result;
}
#else
float total(float value) {
    const uint lane = gl_LocalInvocationID.x;
    partial[lane] = value;
    for (uint half_size = SIZE / 2; half_size >= COLUMNS; half_size /= 2) {
        barrier();
        if (lane < half_size) partial[lane] += partial[lane + half_size];
    }
    barrier();
    const float result = partial[lane % COLUMNS];
    barrier();
    return result;
}
#endif

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
