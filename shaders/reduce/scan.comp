#version 450
#extension GL_GOOGLE_include_directive : require
// Sums, or with PRODUCTS products, of all elements up to each one along the middle axis of x (outer, size, inner);
// with p.backwards of all elements from each one on. The order is always the same.
//
// Each row is cut into slices, a workgroup's each, which takes SIZE elements after SIZE: they are joined in
// log2(SIZE) steps, and their total is carried to the next ones. With STARTS, starts[row, slice] is what the slices
// before give. With TOTALS only each slice's total is written, from which these come.
const uint SIZE = 128;
layout(local_size_x = SIZE) in;
layout(binding = 0) readonly buffer X { float x[]; };
#if STARTS
layout(binding = 1) readonly buffer Starts { float starts[]; };
layout(binding = 2) writeonly buffer Y { float y[]; };
#else
layout(binding = 1) writeonly buffer Y { float y[]; };
#endif
layout(push_constant) uniform Push {
    uint rows, size, inner, x_offset;
    uint columns;        // workgroups along x, further ones along z
    uint slices, slice;  // how many, and their length
    uint backwards;
} p;
shared float found[SIZE];

#if PRODUCTS
const float NOTHING = 1.0;
float join(float a, float b) {
    return a * b;
}
#else
const float NOTHING = 0.0;
float join(float a, float b) {
    return a + b;
}
#endif

void main() {
    const uint me = gl_LocalInvocationID.x;
    const uint row = gl_WorkGroupID.z * p.columns + gl_WorkGroupID.x;
    if (row >= p.rows) return;
    const uint base = row / p.inner * p.size * p.inner + row % p.inner;
    const uint slice = gl_WorkGroupID.y;
    const uint first = slice * p.slice;
    const uint last = min(first + p.slice, p.size);
    float carried = NOTHING;
#if STARTS
    if (slice > 0) carried = starts[row * p.slices + slice - 1];
#endif
    for (uint block = first; block < last; block += SIZE) {
        const uint i = block + me;
        const uint at = base + (p.backwards == 0 ? i : p.size - 1 - i) * p.inner;
        found[me] = i < last ? x[p.x_offset + at] : NOTHING;
        for (uint reach = 1; reach < SIZE; reach *= 2) {
            barrier();
            const float before = me >= reach ? found[me - reach] : NOTHING;
            barrier();
            found[me] = join(before, found[me]);
        }
        barrier();
#if !TOTALS
        if (i < last) y[at] = join(carried, found[me]);
#endif
        carried = join(carried, found[SIZE - 1]);
        barrier();
    }
#if TOTALS
    if (me == 0) y[row * p.slices + slice] = carried;
#endif
}
