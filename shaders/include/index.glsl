// Where element i of a strided array lies. Sizes and strides count elements, the last axis runs fastest.
uint strided(uint i, const uint sizes[RANK], const uint strides[RANK]) {
    uint at = 0;
    for (int axis = RANK - 1; axis > 0; --axis) {
        const uint rest = i / sizes[axis];
        at += (i - rest * sizes[axis]) * strides[axis];
        i = rest;
    }
    return at + i * strides[0];
}
