// Weights of 4 bits, as dl4all/ops/linalg/int4_product.py describes them: four of the lower and of the upper half of a
// word's bytes, and the scale number `at` of those that lie in words of two.
vec4 lower_weights(const uint word) {
    return vec4((uvec4(word) >> uvec4(0, 8, 16, 24)) & 15u) - 8.0;
}

vec4 upper_weights(const uint word) {
    return vec4((uvec4(word) >> uvec4(4, 12, 20, 28)) & 15u) - 8.0;
}

float scale_in(const uint word, const uint at) {
    const vec2 pair = unpackHalf2x16(word);
    return (at & 1u) == 0 ? pair.x : pair.y;
}
