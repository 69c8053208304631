#version 450
// Exclusive sums of each row of counts: y[row, i] is the sum of x[row, 0] to x[row, i - 1]. A workgroup sums a row; the
// total of a row is y[row, size], behind the others.
const uint SIZE = 128;
const uint RUN = 8;
layout(local_size_x = SIZE) in;
layout(binding = 0) readonly buffer X { uint x[]; };
layout(binding = 1) writeonly buffer Y { uint y[]; };
layout(push_constant) uniform Push {
    uint rows, size, columns;  // columns: workgroups along x, the other ones along z
} p;

shared uint totals[SIZE];

void main() {
    const uint me = gl_LocalInvocationID.x;
    const uint row = gl_WorkGroupID.z * p.columns + gl_WorkGroupID.x;
    if (row >= p.rows) return;
    const uint base = row * p.size;
    const uint target = row * (p.size + 1);
    uint carried = 0;
    for (uint start = 0; start < p.size; start += SIZE * RUN) {
        const uint first = min(start + me * RUN, p.size);
        const uint last = min(first + RUN, p.size);
        uint mine = 0;
        for (uint i = first; i < last; ++i) mine += x[base + i];
        barrier();
        totals[me] = mine;
        for (uint reach = 1; reach < SIZE; reach *= 2) {
            barrier();
            const uint other = me >= reach ? totals[me - reach] : 0;
            barrier();
            totals[me] += other;
        }
        barrier();
        uint before = carried + totals[me] - mine;
        for (uint i = first; i < last; ++i) {
            y[target + i] = before;
            before += x[base + i];
        }
        carried += totals[SIZE - 1];
    }
    if (me == 0) y[target + p.size] = carried;
}
