// The four integers of 8 bits in a word, and sums of their products.
ivec4 with_sign(const uint word) {
    const int w = int(word);
    return ivec4(bitfieldExtract(w, 0, 8), bitfieldExtract(w, 8, 8), bitfieldExtract(w, 16, 8), w >> 24);
}

ivec4 of_a(const uint word) {
#if SIGNED
    return with_sign(word);
#else
    return ivec4((uvec4(word) >> uvec4(0, 8, 16, 24)) & 255u);
#endif
}

int dot4(const ivec4 a, const ivec4 b) {
    const ivec4 products = a * b;
    return products.x + products.y + products.z + products.w;
}
