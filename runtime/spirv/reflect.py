"""Reads from a compute shader's SPIR-V what a backend must know to run it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from dl4all.errors import ShaderError
from dl4all.runtime.spirv.parser import (
    BUILT_IN_NUM_WORKGROUPS,
    BUILT_IN_WORKGROUP_SIZE,
    GL_COMPUTE,
    Decoration,
    Instructions,
    Mode,
    SpirvOp,
    StorageClass,
    Tables,
    parse,
    tabulate,
    text,
)


@dataclass(frozen=True)
class BufferBinding:
    """A storage buffer of descriptor set 0."""

    index: int
    readonly: bool
    writeonly: bool
    scalars: frozenset[str] = frozenset()  # in GLSL, of what it holds: {"float"} of an array of vec4


class PushConstant(NamedTuple):
    """A push constant; its name is empty where the compiler has left it out."""

    name: str
    type: str  # in GLSL; of an array that of its elements, and []
    offset: int  # bytes


@dataclass(frozen=True)
class Interface:
    """The interface of a compute shader."""

    entry: str
    bindings: tuple[BufferBinding, ...]
    push_bytes: int
    spec_ids: tuple[int, ...]
    local_size: tuple[int, int, int]  # spec constants count with their defaults
    local_size_ids: tuple[int | None, int | None, int | None]  # the spec constant that sets each side, if any
    capabilities: tuple[str, ...]
    shared_bytes: int = 0  # memory of a workgroup, at least: lengths that are computed count once
    counts_groups: bool = False  # asks how many workgroups there are, so that a grid cannot be run in pieces
    push: tuple[PushConstant, ...] = ()  # in the order of their offsets

    @property
    def writes(self) -> tuple[bool, ...]:
        """Which of the bindings it may write to."""
        return tuple(not binding.readonly for binding in self.bindings)


# Those that compute shaders meet; any other is shown by its number.
CAPABILITIES = {
    0: "Matrix",
    1: "Shader",
    9: "Float16",
    10: "Float64",
    11: "Int64",
    12: "Int64Atomics",
    22: "Int16",
    39: "Int8",
    61: "GroupNonUniform",
    62: "GroupNonUniformVote",
    63: "GroupNonUniformArithmetic",
    64: "GroupNonUniformBallot",
    65: "GroupNonUniformShuffle",
    66: "GroupNonUniformShuffleRelative",
    67: "GroupNonUniformClustered",
    68: "GroupNonUniformQuad",
    4433: "StorageBuffer16BitAccess",
    4434: "UniformAndStorageBuffer16BitAccess",
    4435: "StoragePushConstant16",
    4441: "VariablePointersStorageBuffer",
    4442: "VariablePointers",
    4448: "StorageBuffer8BitAccess",
    4449: "UniformAndStorageBuffer8BitAccess",
    4450: "StoragePushConstant8",
    4466: "RoundingModeRTE",
    5345: "VulkanMemoryModel",
    5347: "PhysicalStorageBufferAddresses",
    5357: "CooperativeMatrixNV",
    6017: "DotProductInput4x8Bit",
    6018: "DotProductInput4x8BitPacked",
    6019: "DotProduct",
    6022: "CooperativeMatrixKHR",
    6033: "AtomicFloat32AddEXT",
}


def reflect(code: bytes, name: str = "module") -> Interface:
    """The interface of a SPIR-V module; ShaderError if it is damaged or takes what dl4all cannot give."""
    try:
        return _interface(parse(code))
    except ShaderError as error:
        raise ShaderError(f"{name}: {error}") from None
    except (LookupError, ValueError, RecursionError) as error:
        # An id that nothing defines, an instruction short of operands, a type that holds itself.
        raise ShaderError(f"{name}: damaged SPIR-V: {type(error).__name__} {error}") from error


def _interface(ops: Instructions) -> Interface:
    if len(ops[SpirvOp.ENTRY_POINT]) != 1:
        raise ShaderError(f"expected one entry point, got {len(ops[SpirvOp.ENTRY_POINT])}")
    model, function, *name = ops[SpirvOp.ENTRY_POINT][0]
    if model != GL_COMPUTE:
        raise ShaderError(f"expected a compute shader, got execution model {model}")
    tables = tabulate(ops)
    spec_ids = {of[Decoration.SPEC_ID] for of in tables.decorations.values() if Decoration.SPEC_ID in of}
    size, size_ids = _local_size(ops, tables, function)
    return Interface(
        entry=text(name),
        bindings=_bindings(ops, tables),
        push_bytes=_push_bytes(ops, tables),
        spec_ids=tuple(sorted(spec_ids)),
        local_size=size,
        local_size_ids=size_ids,
        shared_bytes=sum(
            _shared_size(tables.types[args[0]][1][1], tables)
            for args in ops[SpirvOp.VARIABLE]
            if args[2] == StorageClass.WORKGROUP
        ),
        capabilities=tuple(CAPABILITIES.get(args[0], str(args[0])) for args in ops[SpirvOp.CAPABILITY]),
        counts_groups=any(
            of.get(Decoration.BUILT_IN) == BUILT_IN_NUM_WORKGROUPS for of in tables.decorations.values()
        ),
        push=_push(ops, tables),
    )


def _bindings(ops: Instructions, tables: Tables) -> tuple[BufferBinding, ...]:
    found: dict[int, BufferBinding] = {}
    for pointer, variable, storage, *_ in ops[SpirvOp.VARIABLE]:
        if storage not in (StorageClass.UNIFORM_CONSTANT, StorageClass.UNIFORM, StorageClass.STORAGE_BUFFER):
            continue
        mine = tables.decorations[variable]
        if Decoration.BINDING not in mine:
            raise ShaderError("a resource has no layout(binding = ...)")
        index = mine[Decoration.BINDING]
        if mine.get(Decoration.DESCRIPTOR_SET, 0) != 0:
            raise ShaderError(
                f"binding {index} is in descriptor set {mine[Decoration.DESCRIPTOR_SET]}, not 0"
            )
        block = tables.types[pointer][1][1]
        is_buffer = (
            storage == StorageClass.STORAGE_BUFFER or Decoration.BUFFER_BLOCK in tables.decorations[block]
        )
        if not is_buffer or block not in tables.types or tables.types[block][0] != SpirvOp.TYPE_STRUCT:
            raise ShaderError(f"binding {index} is not one storage buffer")
        said = [tables.members[block, member] for member in range(len(tables.types[block][1]))]
        readonly = Decoration.NON_WRITABLE in mine or all(Decoration.NON_WRITABLE in of for of in said)
        writeonly = Decoration.NON_READABLE in mine or all(Decoration.NON_READABLE in of for of in said)
        # Two views of one buffer (float and vec4) share a binding; it is read or written if either does so.
        other = found.get(index, BufferBinding(index, True, True))
        found[index] = BufferBinding(
            index,
            readonly and other.readonly,
            writeonly and other.writeonly,
            other.scalars | _scalars(block, tables),
        )
    return tuple(found[index] for index in sorted(found))


SCALARS: dict[int, str] = {SpirvOp.TYPE_INT: "int", SpirvOp.TYPE_FLOAT: "float"}


def _scalars(type: int, tables: Tables) -> frozenset[str]:
    """The names in GLSL of the scalars that a type is made of."""
    if type not in tables.types:
        return frozenset()
    op, operands = tables.types[type]
    if op in SCALARS:
        name = "u" * (op == SpirvOp.TYPE_INT and not operands[1]) + SCALARS[op]
        sized = "double" if (name, operands[0]) == ("float", 64) else f"{name}{operands[0]}_t"
        return frozenset([name if operands[0] == 32 else sized])
    parts = operands if op == SpirvOp.TYPE_STRUCT else operands[:1]
    return frozenset().union(*(_scalars(part, tables) for part in parts))


def _push(ops: Instructions, tables: Tables) -> tuple[PushConstant, ...]:
    blocks = [
        tables.types[args[0]][1][1] for args in ops[SpirvOp.VARIABLE] if args[2] == StorageClass.PUSH_CONSTANT
    ]
    found = [
        PushConstant(
            tables.names.get((block, member), ""),
            _type_name(type, tables),
            tables.members[block, member][Decoration.OFFSET],
        )
        for block in blocks
        for member, type in enumerate(tables.types[block][1])
    ]
    return tuple(sorted(found, key=lambda constant: constant.offset))


VECTORS = {"uint": "u", "int": "i", "float": ""}
"""The first letters of vectors in GLSL, by their scalars."""


def _type_name(type: int, tables: Tables) -> str:
    """The name of a type in GLSL, as far as push constants have it."""
    op, operands = tables.types[type]
    if op == SpirvOp.TYPE_ARRAY:
        return f"{_type_name(operands[0], tables)}[]"
    if op == SpirvOp.TYPE_INT and operands[0] == 32:
        return "int" if operands[1] else "uint"
    if op == SpirvOp.TYPE_FLOAT and operands[0] == 32:
        return "float"
    if op == SpirvOp.TYPE_VECTOR:
        scalar = _type_name(operands[0], tables)
        return f"{VECTORS[scalar]}vec{operands[1]}" if scalar in VECTORS else f"vector of {scalar}"
    return f"type of opcode {op}"


def _push_bytes(ops: Instructions, tables: Tables) -> int:
    blocks = [
        tables.types[args[0]][1][1] for args in ops[SpirvOp.VARIABLE] if args[2] == StorageClass.PUSH_CONSTANT
    ]
    return max((_size(block, tables) for block in blocks), default=0)


def _size(type: int, tables: Tables) -> int:
    """The bytes of a value in a block."""
    op, operands = tables.types[type]
    if op in (SpirvOp.TYPE_INT, SpirvOp.TYPE_FLOAT):
        return operands[0] // 8
    if op == SpirvOp.TYPE_VECTOR:
        return _size(operands[0], tables) * operands[1]
    if op == SpirvOp.TYPE_ARRAY:
        return tables.decorations[type][Decoration.ARRAY_STRIDE] * tables.constants[operands[1]]
    if op == SpirvOp.TYPE_STRUCT:
        return max((_member_end(type, i, member, tables) for i, member in enumerate(operands)), default=0)
    raise ShaderError(f"push constants hold a type of opcode {op}, whose size is not known")


def _shared_size(type: int, tables: Tables) -> int:
    """The bytes of a value in shared memory, where nothing says how it is laid out."""
    if type not in tables.types:
        return 4  # bool
    op, operands = tables.types[type]
    if op in (SpirvOp.TYPE_VECTOR, SpirvOp.TYPE_MATRIX):
        return _shared_size(operands[0], tables) * operands[1]
    if op == SpirvOp.TYPE_ARRAY:
        return _shared_size(operands[0], tables) * tables.constants.get(operands[1], 1)
    if op == SpirvOp.TYPE_STRUCT:
        return sum(_shared_size(member, tables) for member in operands)
    return operands[0] // 8


def _member_end(block: int, index: int, type: int, tables: Tables) -> int:
    said = tables.members[block, index]
    op, operands = tables.types[type]
    if op != SpirvOp.TYPE_MATRIX:
        return said[Decoration.OFFSET] + _size(type, tables)
    column, columns = operands
    lines = tables.types[column][1][1] if Decoration.ROW_MAJOR in said else columns
    return said[Decoration.OFFSET] + said[Decoration.MATRIX_STRIDE] * lines


def _local_size(
    ops: Instructions, tables: Tables, function: int
) -> tuple[tuple[int, int, int], tuple[int | None, int | None, int | None]]:
    composites = ops[SpirvOp.CONSTANT_COMPOSITE] + ops[SpirvOp.SPEC_CONSTANT_COMPOSITE]
    # In this order: the built-in, where there is one, overrides the modes.
    for _, result, *sides in composites:
        if tables.decorations[result].get(Decoration.BUILT_IN) == BUILT_IN_WORKGROUP_SIZE:
            return _sizes_of(sides, tables)
    for target, mode, *sides in ops[SpirvOp.EXECUTION_MODE_ID]:
        if (target, mode) == (function, Mode.LOCAL_SIZE_ID):
            return _sizes_of(sides, tables)
    for target, mode, *sides in ops[SpirvOp.EXECUTION_MODE]:
        if (target, mode) == (function, Mode.LOCAL_SIZE):
            x, y, z = sides
            return (x, y, z), (None, None, None)
    raise ShaderError("no local size")


def _sizes_of(
    sides: list[int], tables: Tables
) -> tuple[tuple[int, int, int], tuple[int | None, int | None, int | None]]:
    x, y, z = (tables.constants[side] for side in sides)
    i, j, k = (tables.decorations[side].get(Decoration.SPEC_ID) for side in sides)
    return (x, y, z), (i, j, k)
