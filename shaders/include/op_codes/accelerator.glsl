// The loop of the accelerator: an instruction is refused, with its number, if it could reach words that are not the
// program's. What the parts of a program agree on beyond that is the work of the check on the host.
//
// The push constants are the words of the memory, and the rounds of loops after which a dispatch leaves the rest to the
// next one: some drivers end all loops of an invocation after so many. State: status, the next or refused instruction, its
// first element that is not computed yet, and of each counter whether its loop runs, its iteration, and its start.
const uint RUNNING = 0, DONE = 1, REFUSED = 2, TOO_DEEP = 3;
const uint STATUS = 0, NEXT = 1, ELEMENT = 2, COUNTER = 3, COUNTER_WORDS = 3;
const uint INSTRUCTION_ROUNDS = 40;  // of the loops that an instruction takes at most beside its own

uint product(uint a, uint b) {
    uint high, low;
    umulExtended(a, b, high, low);
    return high != 0 ? ~0u : low;
}

uint sum(uint a, uint b) {
    uint carry;
    const uint total = uaddCarry(a, b, carry);
    return carry != 0 ? ~0u : total;
}

// Whether the elements of such sizes lie in memory; a number has none there.
bool lies(Operand o, uvec4 sizes) {
    if (o.is_number) return true;
    uint end = o.offset;
    for (uint axis = 0; axis < 4; ++axis) {
        if (sizes[axis] == 0) return false;
        end = sum(end, product(sizes[axis] - 1, o.strides[axis]));
    }
    return end < p.first;
}

bool exists(uint word) {
    const uint kind = word >> 14, position = word & 0x3fffu;
    if (kind == 0) {
        const uint at = HEADER + position * REGISTER_WORDS;
        return position < code[0]
            && sum(code[at], sum(product(iteration.x, code[at + 9]), product(iteration.y, code[at + 10]))) < p.first;
    }
    return kind == NUMBER ? position < code[1] : kind != PARAMETER || position < 30;
}

// Whether flat instructions find so many words at an operand.
bool lies_flat(Operand o, uint n, bool stays) {
    return o.is_number || stays || sum(o.offset, n) <= p.first;
}

bool is_flat(Instruction i) {
    const uint n = i.last_word;
    return i.op < FUNCTION_CODE && (i.flags & FLAT) != 0 && n == elements(operand(i.result))
        && lies_flat(flat_operand(i.result), n, false) && lies_flat(flat_operand(i.a), n, (i.flags & A_STAYS) != 0)
        && lies_flat(flat_operand(i.b), n, (i.flags & B_STAYS) != 0)
        && lies_flat(flat_operand(i.c), n, (i.flags & C_STAYS) != 0);
}

uint count_of(uvec4 sizes) {
    return product(product(sizes.x, sizes.y), product(sizes.z, sizes.w));
}

// How an instruction is split between dispatches: it has so many elements, or rows, of which the workgroup computes `batch`
// at a time in so many rounds of its loops, each with the one in which a loop ends. One that is not legal has none.
struct Share {
    uint count, batch, rounds;
};

const Share ILLEGAL = Share(0, 1, 1);

Share elements_share(bool fits, uint count, uint rounds) {
    return fits ? Share(count, SIZE, rounds) : ILLEGAL;
}

Share share_of(Instruction i) {
    if (i.op > CHECK_CODE || i.op == LOAD_CODE || i.op == STORE_CODE || i.result >= code[0]) return ILLEGAL;
    if (!exists(i.result) || !exists(i.a) || !exists(i.b) || !exists(i.c)) return ILLEGAL;
    const Operand y = operand(i.result), a = operand(i.a), b = operand(i.b), c = operand(i.c);
    const uvec4 n = y.sizes;
    const uint count = count_of(n);
    if (!lies(y, n) || !lies(c, n) || count > p.first) return ILLEGAL;
    if (i.op < ROW_SUM_CODE || i.op == IOTA_CODE || i.op == CHECK_CODE) {
        return elements_share(lies(a, n) && lies(b, n), count, 2);
    }
    if (a.is_number) return ILLEGAL;
    if (i.op < MATMUL_CODE) {
        if (!lies(a, a.sizes) || !lies(y, uvec4(a.sizes.xyz, 1)) || count_of(a.sizes) > p.first) return ILLEGAL;
        const uint rows = count_of(uvec4(a.sizes.xyz, 1)), lanes = lanes_of(a.sizes.w, rows);
        return Share(rows, SIZE / lanes, 12 + a.sizes.w / lanes);
    }
    if (i.op == MATMUL_CODE || i.op == MATMUL_INT8_CODE) {
        const bool fits = lies(a, uvec4(n.xyz, a.sizes.w)) && lies(b, uvec4(n.xy, a.sizes.w, n.w)) && !b.is_number;
        const uint each = i.op == MATMUL_CODE ? 1 : 6;
        const Share share = elements_share(fits, count, sum(2, product(each, a.sizes.w)));
#if TILE > 0
        if (fits && i.op == MATMUL_CODE) return Share(count, count, 1);  // such drivers have no limit
#endif
        return share;
    }
    if (i.op == PACK_INT8_CODE) {
        return elements_share(lies(a, uvec4(n.xyz, product(4, n.w))) && lies(b, uvec4(n.xyz, 1)), count, 6);
    }
    if (i.op == CONV_CODE || i.op == MAX_POOL_CODE || i.op == SUM_POOL_CODE) {
        if (i.last_word >= code[3]) return ILLEGAL;
        const Window w = window(i.last_word);
        if (w.size.x == 0 || w.size.y == 0 || !lies(a, uvec4(n.x, a.sizes.yzw))) return ILLEGAL;
        const uint channels = i.op == CONV_CODE ? b.sizes.y : 0;
        const uint rounds = sum(3, product(w.size.x, sum(2, product(w.size.y, sum(2, channels)))));
        if (i.op != CONV_CODE) return elements_share(lies(a, uvec4(n.xy, a.sizes.zw)), count, rounds);
        if (b.is_number || channels == 0 || a.sizes.y % channels != 0 || a.sizes.y < channels) return ILLEGAL;
        const bool divides = n.y % (a.sizes.y / channels) == 0;
        return elements_share(divides && lies(b, uvec4(n.y, channels, w.size)), count, rounds);
    }
    const bool fits = i.op == ONE_HOT_CODE
        ? lies(a, uvec4(1, 1, 1, n.z))
        : lies(a, uvec4(1, 1, a.sizes.z, n.w)) && lies(b, uvec4(1, 1, 1, n.z)) && !b.is_number;
    return elements_share(fits, count, 2);
}

void main() {
    lane = gl_LocalInvocationID.x;
    numbers_at = HEADER + code[0] * REGISTER_WORDS;
    windows_at = numbers_at + code[1];
    instructions_at = windows_at + code[3] * WINDOW_WORDS;
    uint status = state[STATUS], pc = state[NEXT], done = state[ELEMENT], work = 0;
    bvec2 runs;
    uvec2 start;
    for (uint k = 0; k < 2; ++k) {
        runs[k] = state[COUNTER + k * COUNTER_WORDS] != 0;
        iteration[k] = state[COUNTER + k * COUNTER_WORDS + 1];
        start[k] = state[COUNTER + k * COUNTER_WORDS + 2];
    }
    if (lane == 0) wrong = 0;
    barrier();
    while (status == RUNNING && work < p.last) {
        const Instruction i = fetch(pc);
        uint next = pc + 1;
        work += INSTRUCTION_ROUNDS;
        if (i.op == END) {
            status = DONE;
        } else if (i.op == LOOP_CODE) {
            if (i.result > 1 || runs[i.result & 1u] || i.last_word == 0) status = REFUSED;
            else { runs[i.result] = true; start[i.result] = pc; iteration[i.result] = 0; }
        } else if (i.op == END_CODE) {
            if (i.result > 1 || !runs[i.result & 1u]) status = REFUSED;
            else if (++iteration[i.result] < fetch(start[i.result]).last_word) next = start[i.result] + 1;
            else { runs[i.result] = false; iteration[i.result] = 0; }
        } else if (i.op == JUMP_CODE) {
            memoryBarrierBuffer();
            barrier();
            if (!exists(i.a) || i.last_word > LAST) status = REFUSED;
            else if (element(flat_operand(i.a), 0) != 0.0) next = i.last_word;
        } else {
            const Share share = share_of(i);
            const uint batches = work < p.last ? (p.last - work) / share.rounds : 0;
            if (share.count == 0) {
                status = REFUSED;
            } else if (batches == 0) {
                if (share.rounds > p.last - INSTRUCTION_ROUNDS) status = TOO_DEEP;
                work = p.last;
                next = pc;
            } else {
                begin_at = done;
                end_at = min(share.count, sum(done, product(batches, share.batch)));
                memoryBarrierBuffer();  // an accelerator finds out by itself what depends on what
                barrier();
                if (is_flat(i)) {
                    const Operand y = flat_operand(i.result);
                    run_flat(i.op, i.flags, i.last_word, y, flat_operand(i.a), flat_operand(i.b), flat_operand(i.c));
                } else {
                    run_other(i);
                }
                work += (end_at - begin_at + share.batch - 1) / share.batch * share.rounds;
                done = end_at < share.count ? end_at : 0;
                if (done != 0) next = pc;
                if (i.op == CHECK_CODE || i.op == TAKE_ROWS_CODE) {
                    barrier();
                    if (wrong != 0) status = REFUSED;
                }
            }
        }
        if (status == RUNNING) pc = next;
    }
    barrier();
    if (lane == 0) {
        state[STATUS] = status;
        state[NEXT] = pc;
        state[ELEMENT] = done;
        for (uint k = 0; k < 2; ++k) {
            state[COUNTER + k * COUNTER_WORDS] = runs[k] ? 1 : 0;
            state[COUNTER + k * COUNTER_WORDS + 1] = iteration[k];
            state[COUNTER + k * COUNTER_WORDS + 2] = start[k];
        }
    }
}
