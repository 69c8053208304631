// One result of a convolution with 3x3 filters, one product after the other, for the tiles that Winograd's algorithm
// leaves to be computed again: winograd_result.comp says which. With FLIP=1, Y is the gradient of an input, X the
// gradient of the results, and the filters are flipped.

// The plain sum. Once it is nan it stays nan.
float plain_sum(uint image, uint row, int top, int left) {
    float sum = p.has_bias != 0 ? bias[p.bias_offset + row] : 0.0;
    for (uint channel = 0; channel < p.channels && !is_nan(sum); ++channel) {
        const uint plane = p.x_offset + (image * p.channels + channel) * p.in_height * p.in_width;
#if FLIP
        const uint filter_ = p.w_offset + (channel * p.filters + row) * 9;
#else
        const uint filter_ = p.w_offset + (row * p.channels + channel) * 9;
#endif
        UNROLL(tap, 9) {
            const uint i = uint(top) + tap / 3, j = uint(left) + tap % 3;
            const float value = i < p.in_height && j < p.in_width ? x[plane + i * p.in_width + j] : 0.0;
#if FLIP
            sum += value * w[filter_ + 8 - tap];
#else
            sum += value * w[filter_ + tap];
#endif
        }
    }
    return sum;
}
