// Instructions of the accelerator alone: convolutions, pools, products of bytes, positions and checks of indices.

struct Window {
    uvec2 size, stride, padding, dilation;
};

Window window(uint position) {
    const uint at = windows_at + position * WINDOW_WORDS;
    return Window(
        uvec2(code[at], code[at + 1]), uvec2(code[at + 2], code[at + 3]), uvec2(code[at + 4], code[at + 5]),
        uvec2(code[at + 6], code[at + 7])
    );
}

// Place in the image of a place in a window; beyond the image where that is padding.
uvec2 pixel_of(Window w, uvec2 place, uvec2 within) {
    return place * w.stride + within * w.dilation - w.padding;
}

void run_pool(bool is_max, Operand y, Operand a, Window w) {
    const uint n = elements(y);
    EACH(i, n) {
        const uvec4 place = place_of(i, y.sizes);
        const uint image = a.offset + place.x * a.strides.x + place.y * a.strides.y;
        float value = is_max ? -infinity() : 0.0;
        for (uint r = 0; r < w.size.x; ++r) {
            for (uint s = 0; s < w.size.y; ++s) {
                const uvec2 pixel = pixel_of(w, place.zw, uvec2(r, s));
                if (pixel.x >= a.sizes.z || pixel.y >= a.sizes.w) continue;
                const float one = arena[image + pixel.x * a.strides.z + pixel.y * a.strides.w];
                value = is_max ? larger(value, one) : value + one;
            }
        }
        arena[y.offset + distance_of(place, y.strides)] = value;
    }
}

void run_conv(Operand y, Operand a, Operand b, Operand c, Window w) {
    const uint n = elements(y), channels = b.sizes.y, own_filters = y.sizes.y * channels / a.sizes.y;
    EACH(i, n) {
        const uvec4 place = place_of(i, y.sizes);
        const uint group = place.y / own_filters;
        const uint image = a.offset + place.x * a.strides.x + group * channels * a.strides.y;
        const uint filter_at = b.offset + place.y * b.strides.x;
        float value = 0.0;
        for (uint r = 0; r < w.size.x; ++r) {
            for (uint s = 0; s < w.size.y; ++s) {
                const uvec2 pixel = pixel_of(w, place.zw, uvec2(r, s));
                if (pixel.x >= a.sizes.z || pixel.y >= a.sizes.w) continue;
                uint a_at = image + pixel.x * a.strides.z + pixel.y * a.strides.w;
                uint b_at = filter_at + r * b.strides.z + s * b.strides.w;
                for (uint k = 0; k < channels; ++k, a_at += a.strides.y, b_at += b.strides.y) {
                    value += arena[a_at] * arena[b_at];
                }
            }
        }
        arena[y.offset + distance_of(place, y.strides)] = value + element(c, distance_of(place, c.strides));
    }
}

int byte_of(uint word, uint k) {
    return bitfieldExtract(int(word), int(8 * k), 8);
}

// y = a @ b + c of ints; a word of a are four of a row, a word of b four of a column.
void run_matmul_int8(Operand y, Operand a, Operand b, Operand c) {
    const uint n = elements(y);
    EACH(i, n) {
        const uvec4 place = place_of(i, y.sizes);
        uint a_at = a.offset + distance_of(uvec4(place.xyz, 0), a.strides);
        uint b_at = b.offset + distance_of(uvec4(place.xy, 0, place.w), b.strides);
        int sum = 0;
        for (uint k = 0; k < a.sizes.w; ++k, a_at += a.strides.w, b_at += b.strides.z) {
            const uint left = floatBitsToUint(arena[a_at]), right = floatBitsToUint(arena[b_at]);
            for (uint part = 0; part < 4; ++part) sum += byte_of(left, part) * byte_of(right, part);
        }
        sum += floatBitsToInt(element(c, distance_of(place, c.strides)));
        arena[y.offset + distance_of(place, y.strides)] = intBitsToFloat(sum);
    }
}

void run_pack_int8(Operand y, Operand a, Operand b) {
    const uint n = elements(y);
    EACH(i, n) {
        const uvec4 place = place_of(i, y.sizes);
        const uint from = a.offset + distance_of(uvec4(place.xyz, 4 * place.w), a.strides);
        const float scale = element(b, distance_of(uvec4(place.xyz, 0), b.strides));
        uint word = 0;
        for (uint part = 0; part < 4; ++part) {
            const float scaled = arena[from + part * a.strides.w] / scale;
            const int rounded = is_nan(scaled) ? 0 : int(clamp(roundEven(scaled), -127.0, 127.0));
            word = bitfieldInsert(word, uint(rounded), int(8 * part), 8);
        }
        arena[y.offset + distance_of(place, y.strides)] = uintBitsToFloat(word);
    }
}

// a + the position on the last axis, or a as it is if no int of it is out of -1..b - 1.
void run_index(bool is_check, Operand y, Operand a, Operand b) {
    const uint n = elements(y);
    EACH(i, n) {
        const uvec4 place = place_of(i, y.sizes);
        const float value = element(a, distance_of(place, a.strides));
        const int index = floatBitsToInt(value);
        if (is_check && (index < -1 || index >= int(element(b, distance_of(place, b.strides))))) wrong = 1;
        arena[y.offset + distance_of(place, y.strides)] = is_check ? value : value + float(place.w);
    }
}

void run_of_accelerator(uint op, Operand y, Operand a, Operand b, Operand c, uint position) {
    if (op == CONV_CODE) run_conv(y, a, b, c, window(position));
    else if (op == MAX_POOL_CODE || op == SUM_POOL_CODE) run_pool(op == MAX_POOL_CODE, y, a, window(position));
    else if (op == MATMUL_INT8_CODE) run_matmul_int8(y, a, b, c);
    else if (op == PACK_INT8_CODE) run_pack_int8(y, a, b);
    else run_index(op == CHECK_CODE, y, a, b);
}
