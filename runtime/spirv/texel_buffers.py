"""Rewrites a shader so that it reads its read-only storage buffers as uniform texel buffers.

Some devices read texel buffers much faster. llvmpipe loads from a storage buffer lane by lane, and on
processors without AVX-512 each of these loads waits for a store; ``texelFetch`` does not. Many mobile GPUs
have a cache that only textures go through. A shader says nothing of it: it has ``readonly`` buffers, and the
same module runs either way (docs/decisions/0009-texel-buffers.md).

A variable is rewritten if its block is one runtime array of scalars, two- or four-vectors of 32 bits, or of
as many bits in 64-bit words, and if nothing but loads uses it. Every other variable stays a storage buffer.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from dl4all.runtime.spirv.instructions import TYPE_IMAGE, Declarations, instruction, instructions
from dl4all.runtime.spirv.parser import (
    HEADER_WORDS,
    Decoration,
    Instructions,
    SpirvOp,
    StorageClass,
    Tables,
    parse,
    tabulate,
)
from dl4all.runtime.spirv.reflect import Interface

CAPABILITY_SAMPLED_BUFFER = 46
IMAGE_OF_TEXELS = (
    5,
    0,
    0,
    0,
    1,
    0,
)  # a buffer: no depth, not arrayed, one sample, read by fetches, any format

LINE, EXT_INST, LOAD, ACCESS_CHAIN, IN_BOUNDS_ACCESS_CHAIN = 8, 12, 61, 65, 66
VECTOR_EXTRACT_DYNAMIC, VECTOR_SHUFFLE, COMPOSITE_EXTRACT, COMPOSITE_INSERT = 77, 79, 81, 82
IMAGE_FETCH, BITCAST, LOOP_MERGE, SELECTION_MERGE, SWITCH = 95, 124, 246, 247, 251
# They have literal operands, which may equal an id, and take no pointers to buffers.
WITHOUT_POINTERS = frozenset(
    (LINE, EXT_INST, VECTOR_SHUFFLE, COMPOSITE_EXTRACT, COMPOSITE_INSERT, LOOP_MERGE, SELECTION_MERGE, SWITCH)
)


class TexelFormat(NamedTuple):
    """Texels of 1, 2 or 4 components of 32 bits."""

    components: int
    kind: Literal["float", "uint", "int"]

    @property
    def nbytes(self) -> int:
        return 4 * self.components


class Descriptor(NamedTuple):
    """The view that a shader finds at a binding: texels or, without a format, the span as it is."""

    binding: int
    span: int
    format: TexelFormat | None


class TexelShader(NamedTuple):
    """A module that reads texel buffers, and what to bind where."""

    code: bytes
    descriptors: tuple[Descriptor, ...]


@dataclass
class _Buffer:
    """A variable that can be rewritten."""

    variable: int
    binding: int  # where it was
    format: TexelFormat
    element: int  # type of the array's elements
    wide: bool  # elements of 64-bit words
    loads: int = 0


class _Chain(NamedTuple):
    """A pointer to an element of a buffer, or to a component of one."""

    buffer: _Buffer
    element: int  # id of its index
    component: int | None


class _Declarations(Declarations):
    """With the types of texels."""

    def component(self, format: TexelFormat) -> int:
        if format.kind == "float":
            return self.type(SpirvOp.TYPE_FLOAT, 32)
        return self.type(SpirvOp.TYPE_INT, 32, int(format.kind == "int"))

    def vector(self, format: TexelFormat, count: int) -> int:
        return self.type(SpirvOp.TYPE_VECTOR, self.component(format), count)

    def image(self, format: TexelFormat) -> int:
        return self.type(TYPE_IMAGE, self.component(format), *IMAGE_OF_TEXELS)


def read_as_texels(code: bytes, interface: Interface) -> TexelShader | None:
    """The same shader with texel buffers, or None if there is nothing to rewrite.

    ``interface`` is that of ``code``: reflecting it has checked that the module is whole.
    """
    ops = parse(code)
    tables = tabulate(ops)
    words = struct.unpack(f"<{len(code) // 4}I", code)
    buffers = _candidates(ops, tables, interface)
    chains = _chains(words, buffers)
    read = {buffer.binding for buffer in buffers.values() if buffer.loads}
    buffers = {id: buffer for id, buffer in buffers.items() if buffer.binding in read}
    if not buffers:
        return None
    descriptors = _descriptors(ops, tables, buffers)
    declarations = _Declarations(words[3], ops, tables)
    places = {(d.span, d.format): d.binding for d in descriptors}
    first = {d.span: d.binding for d in reversed(descriptors) if d.format}  # of variables that nothing reads
    bindings = {
        b.variable: places[b.binding, b.format] if b.loads else first[b.binding] for b in buffers.values()
    }
    constants = {args[1]: args[2] for args in ops[SpirvOp.CONSTANT]}
    body = _body(words, buffers, bindings, chains, declarations, constants)
    capability = instruction(SpirvOp.CAPABILITY, CAPABILITY_SAMPLED_BUFFER)
    rewritten = [*words[:3], declarations.bound, *words[4:HEADER_WORDS], *capability, *body]
    return TexelShader(struct.pack(f"<{len(rewritten)}I", *rewritten), descriptors)


def _candidates(ops: Instructions, tables: Tables, interface: Interface) -> dict[int, _Buffer]:
    """By id, the variables that are read-only arrays of texels as far as declarations tell."""
    readonly = {binding.index for binding in interface.bindings if binding.readonly}
    elements = {args[0]: args[1] for args in ops[SpirvOp.TYPE_RUNTIME_ARRAY]}
    found = {}
    for pointer, variable, storage, *_ in ops[SpirvOp.VARIABLE]:
        binding = tables.decorations[variable].get(Decoration.BINDING)
        if storage not in (StorageClass.UNIFORM, StorageClass.STORAGE_BUFFER) or binding not in readonly:
            continue
        block = tables.types[pointer][1][1]
        members = tables.types[block][1]
        said = tables.decorations[variable].keys() | tables.members[block, 0].keys()
        if said & {Decoration.VOLATILE, Decoration.COHERENT}:
            continue  # a texel buffer shows what a dispatch began with
        if len(members) != 1 or members[0] not in elements or tables.members[block, 0].get(Decoration.OFFSET):
            continue
        element = elements[members[0]]
        format, wide = _format(element, tables)
        stride = tables.decorations[members[0]].get(Decoration.ARRAY_STRIDE)
        if format is not None and stride == format.nbytes:
            found[variable] = _Buffer(variable, binding, format, element, wide)
    return found


def _format(type: int, tables: Tables) -> tuple[TexelFormat | None, bool]:
    """Texels that hold values of a type, if any do, and whether these are of 64-bit words."""
    op, operands = tables.types.get(type, (0, ()))
    count = 1
    if op == SpirvOp.TYPE_VECTOR:
        type, count = operands
        op, operands = tables.types[type]
    if op == SpirvOp.TYPE_FLOAT and operands[0] == 32 and count != 3:
        return TexelFormat(count, "float"), False
    if op == SpirvOp.TYPE_INT and operands[0] == 32 and count != 3:
        return TexelFormat(count, "int" if operands[1] else "uint"), False
    if op == SpirvOp.TYPE_INT and operands[0] == 64 and count <= 2:
        return TexelFormat(2 * count, "uint"), True
    return None, False


def _chains(words: Sequence[int], buffers: dict[int, _Buffer]) -> dict[int, _Chain]:
    """By id, pointers into buffers, whose loads are counted. Drops buffers that are used in another way."""
    chains: dict[int, _Chain] = {}
    in_function = False
    for opcode, at, end in instructions(words):
        in_function = in_function or opcode == SpirvOp.FUNCTION
        if not in_function or opcode in WITHOUT_POINTERS:
            continue
        operands = words[at + 1 : end]
        if opcode in (ACCESS_CHAIN, IN_BOUNDS_ACCESS_CHAIN) and operands[2] in buffers and len(operands) > 4:
            _, id, base, _, index, *component = operands
            chains[id] = _Chain(buffers[base], index, component[0] if component else None)
        elif opcode == LOAD and operands[2] in chains:
            chains[operands[2]].buffer.loads += 1
        else:
            for id in operands:
                buffers.pop(id, None)
                if id in chains:
                    buffers.pop(chains[id].buffer.variable, None)
    return {id: chain for id, chain in chains.items() if chain.buffer.variable in buffers}


def _descriptors(ops: Instructions, tables: Tables, buffers: dict[int, _Buffer]) -> tuple[Descriptor, ...]:
    """The descriptors to bind. Two views of one buffer share a binding, but a texel buffer has one format."""
    at = [tables.decorations[args[1]].get(Decoration.BINDING) for args in ops[SpirvOp.VARIABLE]]
    spans = sorted({binding for binding in at if binding is not None})
    stored = {b for args, b in zip(ops[SpirvOp.VARIABLE], at, strict=True) if args[1] not in buffers}
    used = dict.fromkeys((buffer.binding, buffer.format) for buffer in buffers.values() if buffer.loads)
    found, more = [], []
    for span in spans:
        formats = [format for binding, format in used if binding == span]
        keeps_storage = span in stored or not formats
        found.append(Descriptor(span, span, None if keeps_storage else formats[0]))
        more += [(span, format) for format in (formats if keeps_storage else formats[1:])]
    found += [Descriptor(spans[-1] + 1 + i, span, format) for i, (span, format) in enumerate(more)]
    return tuple(found)


def _body(
    words: Sequence[int],
    buffers: dict[int, _Buffer],
    bindings: dict[int, int],
    chains: dict[int, _Chain],
    declarations: _Declarations,
    constants: dict[int, int],
) -> list[int]:
    """Everything after the header: the variables declared anew, and fetches in place of loads."""
    head: list[int] = []
    functions: list[int] = []
    for opcode, at, end in instructions(words):
        operands = words[at + 1 : end]
        if opcode == SpirvOp.VARIABLE and operands[1] in buffers:
            continue
        if opcode == SpirvOp.DECORATE and operands[0] in buffers:
            if operands[1] == Decoration.BINDING:
                head += instruction(opcode, operands[0], Decoration.BINDING, bindings[operands[0]])
            elif operands[1] == Decoration.DESCRIPTOR_SET:
                head += words[at:end]
        elif opcode in (ACCESS_CHAIN, IN_BOUNDS_ACCESS_CHAIN) and operands[1] in chains:
            pass
        elif opcode == LOAD and operands[2] in chains:
            functions += _fetch(operands[0], operands[1], chains[operands[2]], declarations, constants)
        elif functions or opcode == SpirvOp.FUNCTION:
            functions += words[at:end]
        else:
            head += words[at:end]
    for buffer in buffers.values():
        image = declarations.image(buffer.format)
        pointer = declarations.type(SpirvOp.TYPE_POINTER, StorageClass.UNIFORM_CONSTANT, image)
        declarations.words += instruction(
            SpirvOp.VARIABLE, pointer, buffer.variable, StorageClass.UNIFORM_CONSTANT
        )
    return head + declarations.words + functions


def _fetch(
    type: int, result: int, chain: _Chain, declarations: _Declarations, constants: dict[int, int]
) -> list[int]:
    """Instructions that load `result` through a chain: a fetch of four components, and the value of them."""
    buffer, format = chain.buffer, chain.buffer.format
    image = declarations.id()
    written = instruction(LOAD, declarations.image(format), image, buffer.variable)
    steps: list[tuple[int, int, tuple[int, ...]]] = [
        (IMAGE_FETCH, declarations.vector(format, 4), (image, chain.element))
    ]
    if format.components == 1:
        steps.append((COMPOSITE_EXTRACT, declarations.component(format), (0,)))
    elif format.components == 2:
        steps.append((VECTOR_SHUFFLE, declarations.vector(format, 2), (0, 1)))
    if buffer.wide:
        steps.append((BITCAST, buffer.element, ()))
    if chain.component in constants:
        steps.append((COMPOSITE_EXTRACT, type, (constants[chain.component],)))
    elif chain.component is not None:
        steps.append((VECTOR_EXTRACT_DYNAMIC, type, (chain.component,)))
    value = 0
    for i, (opcode, kind, operands) in enumerate(steps):
        made = result if i + 1 == len(steps) else declarations.id()
        if opcode == VECTOR_SHUFFLE:
            operands = (value, *operands)
        written += instruction(opcode, kind, made, *([value] if i else []), *operands)
        value = made
    return written
