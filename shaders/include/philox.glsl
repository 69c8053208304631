// Philox 4x32-10 (Salmon et al., SC11): four random words for each counter, computed with integers only.
uvec4 philox(uvec2 key, uvec4 counter) {
    for (int i = 0; i < 10; ++i) {
        uint high0, low0, high1, low1;
        umulExtended(0xD2511F53u, counter.x, high0, low0);
        umulExtended(0xCD9E8D57u, counter.z, high1, low1);
        counter = uvec4(high1 ^ counter.y ^ key.x, low1, high0 ^ counter.w ^ key.y, low0);
        key += uvec2(0x9E3779B9u, 0xBB67AE85u);
    }
    return counter;
}

// The words of counter start + steps, where start has 64 bits, the lower half first.
uvec4 random_words(uvec2 key, uvec2 start, uint steps) {
    uint carry;
    const uint low = uaddCarry(start.x, steps, carry);
    return philox(key, uvec4(low, start.y + carry, 0u, 0u));
}

// A multiple of 2^-24 in [0, 1), exact and so the same on every device.
float unit(uint word) {
    return float(word >> 8) * (1.0 / 16777216.0);
}
