// Many tensors in one dispatch. A row of the table says with which workgroup the work on a tensor begins, how
// many elements it and those that go with it have, and at which element of its buffer each of them begins.
const uint SIZE = 128;
layout(local_size_x = SIZE) in;
struct Row {
    uint first, n, at[3];
};
layout(binding = 0) readonly buffer Table { Row table[]; };

// The row that this workgroup works on: the last of those from `low` to `high` that does not begin behind it.
Row row_of_workgroup(uint low, uint high) {
    while (high - low > 1) {
        const uint middle = (low + high) / 2;
        if (table[middle].first <= gl_WorkGroupID.x) low = middle;
        else high = middle;
    }
    return table[low];
}
