"""SPIR-V as lists of instructions: the specification's numbers, and a parser that trusts no length."""

from __future__ import annotations

import struct
from collections import defaultdict
from dataclasses import dataclass
from enum import IntEnum

from dl4all.errors import ShaderError

MAGIC = 0x07230203
HEADER_WORDS = 5
GL_COMPUTE = 5


class SpirvOp(IntEnum):
    """The instructions that describe an interface."""

    MEMBER_NAME = 6
    ENTRY_POINT = 15
    EXECUTION_MODE = 16
    CAPABILITY = 17
    TYPE_INT = 21
    TYPE_FLOAT = 22
    TYPE_VECTOR = 23
    TYPE_MATRIX = 24
    TYPE_ARRAY = 28
    TYPE_RUNTIME_ARRAY = 29
    TYPE_STRUCT = 30
    TYPE_POINTER = 32
    CONSTANT = 43
    CONSTANT_COMPOSITE = 44
    SPEC_CONSTANT = 50
    SPEC_CONSTANT_COMPOSITE = 51
    FUNCTION = 54
    FUNCTION_END = 56
    FUNCTION_CALL = 57
    VARIABLE = 59
    DECORATE = 71
    MEMBER_DECORATE = 72
    EXECUTION_MODE_ID = 331


TYPES = (
    SpirvOp.TYPE_INT,
    SpirvOp.TYPE_FLOAT,
    SpirvOp.TYPE_VECTOR,
    SpirvOp.TYPE_MATRIX,
    SpirvOp.TYPE_ARRAY,
    SpirvOp.TYPE_RUNTIME_ARRAY,
    SpirvOp.TYPE_STRUCT,
    SpirvOp.TYPE_POINTER,
)


class Decoration(IntEnum):
    """A decoration of a type, a variable or a member."""

    SPEC_ID = 1
    BUFFER_BLOCK = 3
    ROW_MAJOR = 4
    ARRAY_STRIDE = 6
    MATRIX_STRIDE = 7
    BUILT_IN = 11
    VOLATILE = 21
    COHERENT = 23
    NON_WRITABLE = 24
    NON_READABLE = 25
    BINDING = 33
    DESCRIPTOR_SET = 34
    OFFSET = 35


BUILT_IN_NUM_WORKGROUPS = 24
BUILT_IN_WORKGROUP_SIZE = 25


class Mode(IntEnum):
    """Execution modes."""

    LOCAL_SIZE = 17
    LOCAL_SIZE_ID = 38


class StorageClass(IntEnum):
    """Storage classes."""

    UNIFORM_CONSTANT = 0
    UNIFORM = 2
    WORKGROUP = 4
    PUSH_CONSTANT = 9
    STORAGE_BUFFER = 12


# The operands of each instruction, under its opcode.
Instructions = dict[int, list[tuple[int, ...]]]


@dataclass(frozen=True)
class Tables:
    """A module's declarations, by id."""

    types: dict[int, tuple[int, tuple[int, ...]]]  # opcode and operands after the id
    constants: dict[int, int]  # scalars; a spec constant's default
    decorations: dict[int, dict[int, int]]  # the first operand of each decoration, or 0
    members: dict[tuple[int, int], dict[int, int]]  # the same, by struct and member
    names: dict[tuple[int, int], str]  # by struct and member; a compiler may leave them out


def parse(code: bytes) -> Instructions:
    """Split a module into its instructions; ShaderError if it is not a whole one."""
    if len(code) % 4 or len(code) < 4 * HEADER_WORDS:
        raise ShaderError(f"damaged SPIR-V: {len(code)} bytes")
    words = struct.unpack(f"<{len(code) // 4}I", code)
    if words[0] != MAGIC:
        raise ShaderError(f"not SPIR-V: it starts with {words[0]:#010x}, not {MAGIC:#010x}")
    ops: Instructions = defaultdict(list)
    at = HEADER_WORDS
    while at < len(words):
        length, opcode = words[at] >> 16, words[at] & 0xFFFF
        if length == 0 or at + length > len(words):
            raise ShaderError(f"damaged SPIR-V: the instruction at word {at} does not end")
        ops[opcode].append(words[at + 1 : at + length])
        at += length
    _check_functions(ops)
    return ops


def _check_functions(ops: Instructions) -> None:
    """A module that was cut between two functions looks like a shorter one, but for what it calls."""
    defined = {args[1] for args in ops[SpirvOp.FUNCTION]}
    used = {args[2] for args in ops[SpirvOp.FUNCTION_CALL]} | {args[1] for args in ops[SpirvOp.ENTRY_POINT]}
    if not used <= defined or len(ops[SpirvOp.FUNCTION]) != len(ops[SpirvOp.FUNCTION_END]):
        raise ShaderError("damaged SPIR-V: functions are missing")


def tabulate(ops: Instructions) -> Tables:
    """Look-up tables over a module's declarations."""
    decorations: dict[int, dict[int, int]] = defaultdict(dict)
    for target, what, *value in ops[SpirvOp.DECORATE]:
        decorations[target][what] = value[0] if value else 0
    members: dict[tuple[int, int], dict[int, int]] = defaultdict(dict)
    for target, member, what, *value in ops[SpirvOp.MEMBER_DECORATE]:
        members[target, member][what] = value[0] if value else 0
    return Tables(
        types={args[0]: (op, args[1:]) for op in TYPES for args in ops[op]},
        constants={args[1]: args[2] for op in (SpirvOp.CONSTANT, SpirvOp.SPEC_CONSTANT) for args in ops[op]},
        decorations=decorations,
        members=members,
        names={(struct, member): text(name) for struct, member, *name in ops[SpirvOp.MEMBER_NAME]},
    )


def text(words: list[int]) -> str:
    """A literal string."""
    raw = struct.pack(f"<{len(words)}I", *words)
    return raw[: raw.index(b"\0")].decode()
