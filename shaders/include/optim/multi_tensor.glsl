// Many tensors in one dispatch. A row of the table holds, for one job, its first workgroup, the number of elements of
// each of its tensors, and the offsets of these in their buffers.
const uint SIZE = 128;
layout(local_size_x = SIZE) in;
struct Row {
    uint first_workgroup, n, offsets[6];
};
layout(binding = 0) readonly buffer Table { Row table[]; };

// The row of this workgroup, by bisection: the last one from `low` to `high` whose first workgroup is not after it.
Row row_of_workgroup(uint low, uint high) {
    while (high - low > 1) {
        const uint middle = (low + high) / 2;
        if (table[middle].first_workgroup <= gl_WorkGroupID.x) low = middle;
        else high = middle;
    }
    return table[low];
}
