#version 450
#extension GL_GOOGLE_include_directive : require
// Runs the instructions `first` to `last` - 1 of a program on one array of words, the arena. One workgroup: all of it
// works on one instruction after the other. Programs are laid out as dl4all/graph/op_codes/instruction.py says. The
// table of op codes gives ARITHMETIC and FUNCTIONS, which are cases of a switch, and the numbers X_CODE. ACCELERATOR: for
// programs with loops and windows, each instruction is checked before it runs, and a dispatch that has done its share
// leaves the rest to the next one.
#include "math/error_function.glsl"
#include "math/exponential.glsl"
#include "math/logarithm.glsl"
#include "math/power.glsl"
#include "math/special.glsl"
#include "math/trigonometry.glsl"
#include "divide.glsl"

layout(local_size_x = SIZE) in;
layout(binding = 0) readonly buffer Code { uint code[]; };
layout(binding = 1) coherent buffer Arena { float arena[]; };
#if ACCELERATOR
layout(binding = 2) buffer State { uint state[]; };
#endif
#if BUFFERS > 0
layout(binding = 2) buffer Outside0 { float outside0[]; };
layout(binding = 3) buffer Outside1 { float outside1[]; };
#endif
#if BUFFERS > 2
layout(binding = 4) buffer Outside2 { float outside2[]; };
layout(binding = 5) buffer Outside3 { float outside3[]; };
layout(binding = 6) buffer Outside4 { float outside4[]; };
layout(binding = 7) buffer Outside5 { float outside5[]; };
#endif
layout(push_constant) uniform Push {
    uint first, last;
    float parameters[30];
} p;

const uint HEADER = 6;
const uint REGISTER_WORDS = 11;
const uint WINDOW_WORDS = 8;
const uint INSTRUCTION_WORDS = 4;
const uint WAIT = 1, FLAT = 2, A_STAYS = 4, B_STAYS = 8, C_STAYS = 16;
const uint NUMBER = 1, PARAMETER = 2, NOTHING = 3;  // kinds of operands; 0 is a register

shared float partial[SIZE];
#if ACCELERATOR
shared uint wrong;  // 1 if an index is out of range
#endif

uint lane;  // of this invocation
uint numbers_at, windows_at, instructions_at;  // in the program
#if ACCELERATOR
uvec2 iteration = uvec2(0);  // of each loop
uint begin_at, end_at;  // the elements, or rows of a reduction, of an instruction that this dispatch computes
#define BEGIN begin_at
#define UP_TO(n) min(n, end_at)
#else
#define BEGIN 0
#define UP_TO(n) n
#endif
#define EACH(i, n) for (uint i = BEGIN + lane; i < UP_TO(n); i += SIZE)

// An operand: a register of the arena, or a number.
struct Operand {
    bool is_number;
    float number;
    uint offset;
    uvec4 sizes, strides;
};

// An operand without sizes and strides, as far as flat instructions need it.
Operand flat_operand(uint word) {
    const uint kind = word >> 14, position = word & 0x3fffu;
    Operand o = Operand(kind != 0, 0.0, 0, uvec4(1), uvec4(0));
    if (kind == 0) {
        const uint at = HEADER + position * REGISTER_WORDS;
        o.offset = code[at];
#if ACCELERATOR
        o.offset += iteration.x * code[at + 9] + iteration.y * code[at + 10];
#endif
    }
    if (kind == NUMBER) o.number = uintBitsToFloat(code[numbers_at + position]);
    if (kind == PARAMETER) o.number = p.parameters[min(position, 29)];
    return o;
}

Operand operand(uint word) {
    Operand o = flat_operand(word);
    if (!o.is_number) {
        const uint at = HEADER + word * REGISTER_WORDS;
        o.sizes = uvec4(code[at + 1], code[at + 2], code[at + 3], code[at + 4]);
        o.strides = uvec4(code[at + 5], code[at + 6], code[at + 7], code[at + 8]);
    }
    return o;
}

float element(Operand o, uint at) {
    return o.is_number ? o.number : arena[o.offset + at];
}

uint elements(Operand o) {
    return o.sizes.x * o.sizes.y * o.sizes.z * o.sizes.w;
}

// The place of an element on each axis.
uvec4 place_of(uint i, uvec4 sizes) {
    const uvec2 last = divided(i, sizes.w), third = divided(last.x, sizes.z), second = divided(third.x, sizes.y);
    return uvec4(second.x, second.y, third.y, last.y);
}

uint distance_of(uvec4 place, uvec4 strides) {
    const uvec4 steps = place * strides;
    return steps.x + steps.y + steps.z + steps.w;
}

float arithmetic(uint op, float a, float b, float c) {
    switch (op) {
        ARITHMETIC
    }
    return 0.0;
}

float function(uint op, float a, float b) {
    switch (op) {
        FUNCTIONS
    }
    return 0.0;
}

// Element i of every operand is word i of it, or its only one.
void run_flat(uint op, uint flags, uint n, Operand y, Operand a, Operand b, Operand c) {
    const uint a_step = (flags & A_STAYS) != 0 ? 0 : 1, b_step = (flags & B_STAYS) != 0 ? 0 : 1;
    const uint c_step = (flags & C_STAYS) != 0 ? 0 : 1;
    EACH(i, n) {
        const float a_value = element(a, i * a_step), b_value = element(b, i * b_step);
        arena[y.offset + i] = arithmetic(op, a_value, b_value, element(c, i * c_step));
    }
}

void run_strided(uint op, Operand y, Operand a, Operand b, Operand c) {
    const uint n = elements(y);
    EACH(i, n) {
        const uvec4 place = place_of(i, y.sizes);
        const float a_value = element(a, distance_of(place, a.strides));
        const float b_value = element(b, distance_of(place, b.strides));
        const float c_value = element(c, distance_of(place, c.strides));
        arena[y.offset + distance_of(place, y.strides)] = arithmetic(op, a_value, b_value, c_value);
    }
}

void run_function(uint op, Operand y, Operand a, Operand b) {
    const uint n = elements(y);
    EACH(i, n) {
        const uvec4 place = place_of(i, y.sizes);
        const float a_value = element(a, distance_of(place, a.strides));
        const float b_value = element(b, distance_of(place, b.strides));
        arena[y.offset + distance_of(place, y.strides)] = function(op, a_value, b_value);
    }
}

float merged(uint op, float a, float b) {
    return op == ROW_MAX_CODE ? larger(a, b) : a + b;
}

// The invocations that share a row.
uint lanes_of(uint length, uint rows) {
    uint lanes = 1;
    while (lanes < SIZE && lanes * 8 < length && lanes * rows < SIZE) lanes *= 2;
    return lanes;
}

// Rows share the workgroup: each gets a power of two of lanes, which then combine their parts.
void run_reduction(uint op, Operand y, Operand a) {
    const uint length = a.sizes.w, rows = a.sizes.x * a.sizes.y * a.sizes.z;
    const uint lanes = lanes_of(length, rows), together = SIZE / lanes, part = lane % lanes;
    for (uint first = BEGIN; first < UP_TO(rows); first += together) {
        const uint row = first + lane / lanes;
        const uvec4 place = place_of(row, uvec4(a.sizes.xyz, 1));
        const uint start = a.offset + distance_of(place, uvec4(a.strides.xyz, 0));
        float value = op == ROW_MAX_CODE ? -infinity() : 0.0;
        if (row < rows) {
            for (uint i = part; i < length; i += lanes) value = merged(op, value, arena[start + i * a.strides.w]);
        }
        for (uint half_lanes = lanes / 2; half_lanes > 0; half_lanes /= 2) {
            barrier();
            partial[lane] = value;
            barrier();
            if (part < half_lanes) value = merged(op, value, partial[lane + half_lanes]);
        }
        if (part == 0 && row < rows) {
            arena[y.offset + distance_of(place, y.strides)] = op == ROW_MEAN_CODE ? value / float(length) : value;
        }
    }
}

// y = a @ b + c; the sizes' first two axes are a batch, and c broadcasts.
#if TILE == 0
// Each invocation computes an element at a time.
void run_matmul(Operand y, Operand a, Operand b, Operand c) {
    const uint n = elements(y), depth = a.sizes.w;
    EACH(i, n) {
        const uvec4 place = place_of(i, y.sizes);
        uint a_at = a.offset + distance_of(uvec4(place.xyz, 0), a.strides);
        uint b_at = b.offset + distance_of(uvec4(place.xy, 0, place.w), b.strides);
        float sum = 0.0;
        for (uint k = 0; k < depth; ++k, a_at += a.strides.w, b_at += b.strides.z) sum += arena[a_at] * arena[b_at];
        arena[y.offset + distance_of(place, y.strides)] = sum + element(c, distance_of(place, c.strides));
    }
}
#else
// The workgroup computes TILE by TILE elements at a time, from tiles of a and b in shared memory. Each invocation has
// PARTS of them, in rows that are STRIDE apart.
const uint STRIDE = SIZE / TILE, PARTS = TILE / STRIDE;
shared float a_tile[TILE * TILE];
shared float b_tile[TILE * TILE];

void run_matmul(Operand y, Operand a, Operand b, Operand c) {
    const uint rows = y.sizes.z, columns = y.sizes.w, depth = a.sizes.w;
    const uint across = (columns + TILE - 1) / TILE, tiles = (rows + TILE - 1) / TILE * across;
    const uint column = lane % TILE, row = lane / TILE;
    for (uint t = 0; t < y.sizes.x * y.sizes.y * tiles; ++t) {
        const uvec2 batch_tile = divided(t, tiles), tile = divided(batch_tile.y, across);
        const uvec2 batch = divided(batch_tile.x, y.sizes.y);
        const uint a_start = a.offset + batch.x * a.strides.x + batch.y * a.strides.y;
        const uint b_start = b.offset + batch.x * b.strides.x + batch.y * b.strides.y;
        const uint y_row = tile.x * TILE + row, y_column = tile.y * TILE + column;
        float sums[PARTS];
        for (uint part = 0; part < PARTS; ++part) sums[part] = 0.0;
        for (uint k = 0; k < depth; k += TILE) {
            barrier();
            for (uint part = 0; part < PARTS; ++part) {
                const uint r = row + part * STRIDE, at = r * TILE + column;
                const uint a_row = tile.x * TILE + r;
                a_tile[at] = a_row < rows && k + column < depth
                    ? arena[a_start + a_row * a.strides.z + (k + column) * a.strides.w] : 0.0;
                b_tile[at] = k + r < depth && y_column < columns
                    ? arena[b_start + (k + r) * b.strides.z + y_column * b.strides.w] : 0.0;
            }
            barrier();
            const uint end = min(TILE, depth - k);
            for (uint i = 0; i < end; ++i) {
                const float b_value = b_tile[i * TILE + column];
                for (uint part = 0; part < PARTS; ++part) {
                    sums[part] += a_tile[(row + part * STRIDE) * TILE + i] * b_value;
                }
            }
        }
        for (uint part = 0; part < PARTS; ++part) {
            const uvec4 place = uvec4(batch, y_row + part * STRIDE, y_column);
            if (place.z < rows && y_column < columns) {
                const float start = element(c, distance_of(place, c.strides));
                arena[y.offset + distance_of(place, y.strides)] = sums[part] + start;
            }
        }
    }
}
#endif

// Rows of a by the indices in b, or, without b, ones at the indices in a.
void run_rows(uint op, Operand y, Operand a, Operand b) {
    const uint n = y.sizes.z * y.sizes.w;
    EACH(i, n) {
        const uvec2 place = divided(i, y.sizes.w);
        const Operand indices = op == ONE_HOT_CODE ? a : b;
        const int index = floatBitsToInt(element(indices, place.x * indices.strides.w));
        float value = 0.0;
        if (op == ONE_HOT_CODE) value = index == int(place.y) ? 1.0 : 0.0;
#if ACCELERATOR
        else if (index < -1 || index >= int(a.sizes.z)) wrong = 1;
#endif
        else if (index >= 0) value = arena[a.offset + uint(index) * a.strides.z + place.y * a.strides.w];
        arena[y.offset + place.x * y.strides.z + place.y * y.strides.w] = value;
    }
}

#if BUFFERS > 0
#define LOAD(k) for (uint i = lane; i < n; i += SIZE) arena[at + i] = outside##k[from + i]; break;
#define STORE(k) for (uint i = lane; i < n; i += SIZE) outside##k[from + i] = arena[at + i]; break;

void run_transfer(bool loads, uint at, uint n, uint k, uint from) {
    switch (loads ? k : k + 8) {
        case 0: LOAD(0)
        case 1: LOAD(1)
        case 8: STORE(0)
        case 9: STORE(1)
#if BUFFERS > 2
        case 2: LOAD(2)
        case 3: LOAD(3)
        case 4: LOAD(4)
        case 5: LOAD(5)
        case 10: STORE(2)
        case 11: STORE(3)
        case 12: STORE(4)
        case 13: STORE(5)
#endif
    }
}

#endif

struct Instruction {
    uint op, flags, result, a, b, c, last_word;
};

const uint END = 255;  // no op code
#if ACCELERATOR
#define LAST code[2]
#else
#define LAST p.last
#endif

Instruction fetch(uint pc) {
    if (pc >= LAST) return Instruction(END, 0, 0, 0, 0, 0, 0);
    const uint at = instructions_at + pc * INSTRUCTION_WORDS;
    const uint word = code[at], ab = code[at + 1];
    return Instruction(word & 255u, word >> 8 & 255u, word >> 16, ab & 0xffffu, ab >> 16, code[at + 2], code[at + 3]);
}

void wait_if_asked(Instruction i) {
    if ((i.flags & WAIT) != 0) {
        memoryBarrierBuffer();
        barrier();
    }
}

#if ACCELERATOR
#include "op_codes/windows.glsl"
#endif

// An instruction that is no transfer.
void run_other(Instruction i) {
    const Operand y = operand(i.result), a = operand(i.a), b = operand(i.b), c = operand(i.c);
    if (i.op < FUNCTION_CODE) run_strided(i.op, y, a, b, c);
    else if (i.op < ROW_SUM_CODE) run_function(i.op, y, a, b);
    else if (i.op < MATMUL_CODE) run_reduction(i.op, y, a);
    else if (i.op == MATMUL_CODE) run_matmul(y, a, b, c);
#if ACCELERATOR
    else if (i.op > STORE_CODE) run_of_accelerator(i.op, y, a, b, c, i.last_word);
#endif
    else run_rows(i.op, y, a, b);
}

#if ACCELERATOR
#include "op_codes/accelerator.glsl"
#else
// Software drivers walk through all branches, those not taken too. So the kinds that are cheap have loops of their
// own, which run as many instructions as follow each other.
void main() {
    lane = gl_LocalInvocationID.x;
    numbers_at = HEADER + code[0] * REGISTER_WORDS;
    windows_at = numbers_at + code[1];
    instructions_at = windows_at + code[3] * WINDOW_WORDS;
    uint pc = p.first;
    for (Instruction i = fetch(pc); i.op != END;) {
        while (i.op == LOAD_CODE || i.op == STORE_CODE) {
            wait_if_asked(i);
            run_transfer(i.op == LOAD_CODE, flat_operand(i.result).offset, i.c, i.a, i.last_word);
            i = fetch(++pc);
        }
        while (i.op < FUNCTION_CODE && (i.flags & FLAT) != 0) {
            wait_if_asked(i);
            const Operand y = flat_operand(i.result);
            run_flat(i.op, i.flags, i.last_word, y, flat_operand(i.a), flat_operand(i.b), flat_operand(i.c));
            i = fetch(++pc);
        }
        if (i.op < LOAD_CODE && !(i.op < FUNCTION_CODE && (i.flags & FLAT) != 0)) {
            wait_if_asked(i);
            run_other(i);
            i = fetch(++pc);
        }
    }
}
#endif
