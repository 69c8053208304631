// The four integers of 8 bits in a word, and sums of their products. With DOT a device has an instruction for these, which
// the module gets in the place of bitfieldInsert (runtime/spirv/integer_dots.py).
#if DOT
#define FOUR uint

FOUR with_sign(const uint word) {
    return word;
}

FOUR of_a(const uint word) {
    return word;
}

int dot4(const FOUR a, const FOUR b) {
    return bitfieldInsert(int(b), int(a), 0, 32);
}
#else
#define FOUR ivec4

FOUR with_sign(const uint word) {
    const int w = int(word);
    return ivec4(bitfieldExtract(w, 0, 8), bitfieldExtract(w, 8, 8), bitfieldExtract(w, 16, 8), w >> 24);
}

FOUR of_a(const uint word) {
#if SIGNED
    return with_sign(word);
#else
    return ivec4((uvec4(word) >> uvec4(0, 8, 16, 24)) & 255u);
#endif
}

int dot4(const FOUR a, const FOUR b) {
    const ivec4 products = a * b;
    return products.x + products.y + products.z + products.w;
}
#endif
