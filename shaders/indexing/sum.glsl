// Sums of VALUE: floats, ints, vectors of them, or with INT64 low and high words.
VALUE plus(VALUE a, VALUE b) {
#if INT64
    uint carry;
    const uint low = uaddCarry(a.x, b.x, carry);
    return VALUE(low, a.y + b.y + carry);
#else
    return a + b;
#endif
}
