"""Rules of legal instructions.

Nothing else may reach the interpreter of compiled calls, which checks nothing. That of the accelerator checks
again what could reach foreign memory (:mod:`dl4all.graph.accelerator.machine`).
"""

from __future__ import annotations

from dl4all.errors import ArgumentError
from dl4all.graph.op_codes.instruction import (
    COUNTERS,
    MOST,
    PARAMETERS,
    Axes,
    Instruction,
    InstructionOperand,
    OpProgram,
    Register,
    contiguous,
)
from dl4all.graph.op_codes.opcode import CODES, OPCODES, Opcode

MOST_BUFFERS = 6


def check_program(program: OpProgram, arena_words: int) -> None:
    """
    Raises:
        ArgumentError: an instruction is not legal, or a register does not lie in the arena.
    """
    if len(program.registers) > MOST or len(program.numbers) > MOST:
        raise ArgumentError(f"[op codes] a program has at most {MOST} registers and numbers")
    if program.scratchpad.end > arena_words:
        raise ArgumentError(
            f"[op codes] the scratchpad ends at word {program.scratchpad.end} of an arena of {arena_words}"
        )
    for position, one in enumerate(program.registers):
        if end_of(one) > arena_words:
            raise ArgumentError(
                f"[op codes] r{position} ends at word {end_of(one)} of an arena of {arena_words}"
            )
    check_control(program)
    iterations = [1] * COUNTERS
    for position, instruction in enumerate(program.instructions):
        try:
            check_instruction(program, instruction)
            if instruction.name in ("loop", "end"):
                iterations[instruction.result] = max(instruction.immediate, 1)
            elif instruction.name != "jump" and program.scratchpad.words:
                _check_reach(program, instruction, iterations)
        except ArgumentError as problem:
            raise ArgumentError(f"{problem} (instruction {position})") from None


def registers_of(program: OpProgram, instruction: Instruction) -> list[Register]:
    """The result, unless it is a loop's counter, and the operands that are registers."""
    positions = [o.position for o in instruction.operands if o.kind == "register"]
    if OPCODES[CODES[instruction.name]].kind != "control":
        positions.insert(0, instruction.result)
    return [program.registers[position] for position in positions]


def check_control(program: OpProgram) -> None:
    """
    Raises:
        ArgumentError: a loop has no end, uses the counter of one around it, or a jump leads out of its loop
            or out of the program.
    """
    inside: list[tuple[int, ...]] = []  # of each instruction: the loops around it
    loops: list[int] = []
    for position, instruction in enumerate(program.instructions):
        counters = [program.instructions[one].result for one in loops]
        if instruction.name == "loop":
            if instruction.result >= COUNTERS or instruction.result in counters:
                raise ArgumentError(
                    f"[loop] counters are i0 to i{COUNTERS - 1}, each for one loop at a time; "
                    f"got i{instruction.result} (instruction {position})"
                )
            if instruction.immediate < 1:
                raise ArgumentError(f"[loop] runs at least once, got 0 (instruction {position})")
        if instruction.name == "end":
            if not counters or counters[-1] != instruction.result:
                raise ArgumentError(
                    f"[end] i{instruction.result} is not the innermost loop (instruction {position})"
                )
            loops.pop()
        inside.append(tuple(loops))
        if instruction.name == "loop":
            loops.append(position)
    if loops:
        raise ArgumentError(f"[loop] has no end (instruction {loops[-1]})")
    for position, instruction in enumerate(program.instructions):
        if instruction.name == "jump":
            target = instruction.immediate
            if target > len(inside) or inside[position] != (inside[target] if target < len(inside) else ()):
                raise ArgumentError(
                    f"[jump] leads to instruction {target} of {len(inside)}, or into or out of a loop "
                    f"(instruction {position})"
                )


def _check_reach(program: OpProgram, instruction: Instruction, iterations: list[int]) -> None:
    """
    Raises:
        ArgumentError: a register leaves its memory in a later iteration, or a result lies over itself or over
            an operand: which element is there first would depend on who computes it.
    """
    start, end = program.scratchpad.start, program.scratchpad.end
    result, *operands = registers_of(program, instruction)
    ends = [
        end_of(one) + sum((n - 1) * step for n, step in zip(iterations, one.steps, strict=True))
        for one in (result, *operands)
    ]
    for one, last in zip((result, *operands), ends, strict=True):
        limit = start if one.offset < start else end
        if last > limit:
            raise ArgumentError(
                f"[{instruction.name}] a register from word {one.offset} on ends at word {last} in the last "
                f"iteration; its memory ends at {limit}"
            )
    reach = 0
    for stride, size in sorted(zip(result.strides, result.sizes, strict=True)):
        if size > 1 and stride <= reach:
            raise ArgumentError(f"[{instruction.name}] r{instruction.result} lies over itself")
        reach += (size - 1) * stride
    for one, last in zip(operands, ends[1:], strict=True):
        if one != result and one.offset < ends[0] and result.offset < last:
            raise ArgumentError(f"[{instruction.name}] r{instruction.result} lies over a part of an operand")


def end_of(register: Register) -> int:
    """The first word behind a register."""
    axes = zip(register.sizes, register.strides, strict=True)
    return register.offset + sum((size - 1) * stride for size, stride in axes) + 1


def check_instruction(program: OpProgram, instruction: Instruction) -> None:
    """
    Raises:
        ArgumentError: operands are missing or too many, or sizes do not fit.
    """
    name, code = instruction.name, OPCODES[CODES[instruction.name]]
    count = len(instruction.operands)
    if not code.operands - code.optional <= count <= code.operands:
        raise ArgumentError(f"[{name}] takes {code.operands} operands, got {count}")
    for operand in instruction.operands:
        _check_operand(program, operand, name)
        if operand.kind == "register" and 0 in program.registers[operand.position].sizes:
            raise ArgumentError(f"[{name}] r{operand.position} has no elements")
    if code.kind == "control":
        return
    result = _register(program, InstructionOperand("register", instruction.result), name)
    repeated = any(s > 1 and not step for s, step in zip(result.sizes, result.strides, strict=True))
    if repeated:
        raise ArgumentError(f"[{name}] r{instruction.result} repeats elements and cannot be a result")
    if 0 in result.sizes:
        raise ArgumentError(f"[{name}] r{instruction.result} has no elements")
    if program.scratchpad.words:
        _check_memory(program, instruction, code)
    if code.kind == "transfer":
        if result.strides != contiguous(result.sizes):
            raise ArgumentError(f"[{name}] r{instruction.result} must be contiguous")
        if not 0 <= instruction.buffer < MOST_BUFFERS:
            raise ArgumentError(f"[{name}] buffers are b0 to b{MOST_BUFFERS - 1}, got b{instruction.buffer}")
    else:
        _check_sizes(program, instruction, code, result)


def _register(program: OpProgram, operand: InstructionOperand, name: str) -> Register:
    if operand.kind != "register":
        raise ArgumentError(f"[{name}] takes a register here, got a {operand.kind}")
    if operand.position >= len(program.registers):
        raise ArgumentError(f"[{name}] there is no r{operand.position}")
    return program.registers[operand.position]


def _check_operand(program: OpProgram, operand: InstructionOperand, name: str) -> None:
    if operand.kind == "register":
        _register(program, operand, name)
    elif operand.kind == "parameter" and operand.position >= PARAMETERS:
        raise ArgumentError(f"[{name}] parameters are p0 to p{PARAMETERS - 1}, got p{operand.position}")
    elif operand.kind == "number" and operand.position >= len(program.numbers):
        raise ArgumentError(f"[{name}] there is no number {operand.position}")


def _check_sizes(program: OpProgram, instruction: Instruction, code: Opcode, result: Register) -> None:
    """
    Raises:
        ArgumentError: the sizes of the operands do not give those of the result.
    """
    name, operands, sizes = instruction.name, instruction.operands, result.sizes
    if code.kind in ("arithmetic", "function", "index"):
        for operand in operands:
            _check_broadcast(program, operand, sizes, name)
        return
    a = _register(program, operands[0], name).sizes
    if code.kind == "window":
        _check_window(program, instruction, a, sizes)
        return
    if code.kind == "reduction":
        expected: Axes = (*a[:3], 1)
    elif name == "pack_int8":
        expected = (*a[:3], a[3] // 4)
        if a[3] % 4:
            raise ArgumentError(f"[{name}] packs four elements to a word, got rows of {a[3]}")
        _check_broadcast(program, operands[1], (*a[:3], 1), name)
    elif code.kind in ("product", "packed"):
        b = _register(program, operands[1], name).sizes
        if a[3] != b[2] or any(
            one not in (1, most) for side in (a, b) for one, most in zip(side, sizes[:2], strict=False)
        ):
            raise ArgumentError(f"[{name}] sizes differ: {_text(a)} @ {_text(b)}")
        expected = (*sizes[:2], a[2], b[3])
        if len(operands) > 2:
            _check_broadcast(program, operands[2], sizes, name)
    else:
        indices = a if name == "one_hot" else _register(program, operands[1], name).sizes
        if indices[:3] != (1, 1, 1) or (name == "take_rows" and a[:2] != (1, 1)):
            raise ArgumentError(f"[{name}] takes rows of one table, and indices on one axis")
        expected = (1, 1, indices[3], sizes[3] if name == "one_hot" else a[3])
    if sizes != expected:
        raise ArgumentError(f"[{name}] expected a result of sizes {_text(expected)}, got {_text(sizes)}")


def _check_window(program: OpProgram, instruction: Instruction, a: Axes, sizes: Axes) -> None:
    """
    Raises:
        ArgumentError: there is no such window, the groups do not divide channels and filters, or the sizes
            of the result do not follow.
    """
    name = instruction.name
    if instruction.immediate >= len(program.windows):
        raise ArgumentError(f"[{name}] there is no w{instruction.immediate}")
    window = program.windows[instruction.immediate]
    if 0 in (*window.size, *window.stride, *window.dilation):
        raise ArgumentError(f"[{name}] w{instruction.immediate} has a size, stride or dilation of 0")
    expected: Axes = (*a[:2], *sizes[2:])
    if name == "conv":
        filters = _register(program, instruction.operands[1], name).sizes
        expected = (a[0], filters[0], *sizes[2:])
        if filters[2:] != window.size:
            raise ArgumentError(f"[conv] filters of {_text(filters)} do not fit w{instruction.immediate}")
        if a[1] % filters[1] or filters[0] % (a[1] // filters[1]):
            raise ArgumentError(
                f"[conv] filters of {_text(filters)} do not divide {a[1]} channels into equal groups"
            )
        if len(instruction.operands) > 2:
            _check_broadcast(program, instruction.operands[2], sizes, name)
    if sizes != expected:
        raise ArgumentError(f"[{name}] expected a result of sizes {_text(expected)}, got {_text(sizes)}")
    for axis in (0, 1):
        first = (sizes[2 + axis] - 1) * window.stride[axis] - window.padding[axis]  # of the last window
        if first >= a[2 + axis] or window.padding[axis] > (window.size[axis] - 1) * window.dilation[axis]:
            raise ArgumentError(f"[{name}] a window of w{instruction.immediate} lies outside {_text(a)}")


def _check_memory(program: OpProgram, instruction: Instruction, code: Opcode) -> None:
    """
    Raises:
        ArgumentError: a register lies across both memories of an accelerator, or an instruction that is no
            transfer computes outside its scratchpad.
    """
    start, end = program.scratchpad.start, program.scratchpad.end
    if code.kind == "transfer":
        raise ArgumentError(f"[{code.name}] an accelerator has no tensors outside; use copy")
    for position, one in enumerate(registers_of(program, instruction)):
        if one.offset < start < end_of(one) or end_of(one) > end:
            raise ArgumentError(
                f"[{code.name}] words {one.offset} to {end_of(one)} lie across DRAM and scratchpad, which is "
                f"words {start} to {end}"
            )
        is_table = code.name == "take_rows" and position == 1
        if one.offset < start and code.name != "copy" and not is_table:
            raise ArgumentError(
                f"[{code.name}] computes in the scratchpad, words {start} to {end}, and word {one.offset} is "
                "in DRAM; copy it"
            )


def _check_broadcast(program: OpProgram, operand: InstructionOperand, sizes: Axes, name: str) -> None:
    if operand.kind != "register":
        return
    own = _register(program, operand, name).sizes
    if any(one not in (1, most) for one, most in zip(own, sizes, strict=True)):
        raise ArgumentError(f"[{name}] r{operand.position} of {_text(own)} does not fit {_text(sizes)}")


def _text(sizes: Axes) -> str:
    return "x".join(map(str, sizes))
