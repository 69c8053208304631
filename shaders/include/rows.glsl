// Rows along the middle axis of (outer, size, inner). A workgroup takes `lanes` neighbouring rows, a power of
// 2, and SIZE / lanes invocations walk along each; what they find is joined in a tree, always in the same
// order. Before: p with rows, size, inner, lanes and columns (workgroups along x, further ones along z), and
// State with merge().
const uint SIZE = 128;
layout(local_size_x = SIZE) in;
shared State states[SIZE];

uint row() {
    return (gl_WorkGroupID.z * p.columns + gl_WorkGroupID.x) * p.lanes + gl_LocalInvocationID.x % p.lanes;
}

// Where a row's first element lies.
uint start_of(uint row) {
    return row / p.inner * p.size * p.inner + row % p.inner;
}

// The first element of this invocation, and how many lie between two of them.
uint first() {
    return gl_LocalInvocationID.x / p.lanes;
}

uint step() {
    return SIZE / p.lanes;
}

State joined(State mine) {
    const uint me = gl_LocalInvocationID.x;
    states[me] = mine;
    for (uint reach = SIZE / 2; reach >= p.lanes; reach /= 2) {
        barrier();
        if (me < reach) states[me] = merge(states[me], states[me + reach]);
    }
    barrier();
    return states[me % p.lanes];
}
