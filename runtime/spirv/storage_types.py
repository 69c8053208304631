"""Rewrites a shader of float32 so that it reads and writes floats of 16 bits, and computes as before.

A block that is one runtime array of floats, or of vectors of two or four, is declared anew, and each load and
store converts. There are two ways to hold such a block:

- elements of 16 bits, where the device has them in storage buffers (the feature ``storage16``),
- words of 32 bits with two elements each, which any device reads, and which become fetches of texels
  (texel_buffers.py). They are read only: two invocations might write halves of one word.

Integers of 8 bits are held in words of four, and are read as floats, by kernels of products.

Sources: SPIR-V specification, https://registry.khronos.org/SPIR-V/; the conversion of bfloat16 is that of the
upper half of a float32, of two as near the even one.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dl4all.errors import ShaderError
from dl4all.runtime.spirv.instructions import Declarations, instruction, instructions
from dl4all.runtime.spirv.parser import (
    HEADER_WORDS,
    Decoration,
    SpirvOp,
    StorageClass,
    Tables,
    parse,
    tabulate,
)

EXTENSION, IMPORT, EXT_INST, TYPE_BOOL = 10, 11, 12, 20
LOAD, STORE, ACCESS_CHAIN, IN_BOUNDS_ACCESS_CHAIN = 61, 62, 65, 66
VECTOR_EXTRACT_DYNAMIC, COMPOSITE_CONSTRUCT, COMPOSITE_EXTRACT = 77, 80, 81
U_CONVERT, F_CONVERT, BITCAST, I_ADD, SELECT, U_GREATER_THAN = 113, 115, 124, 128, 169, 172
SHIFT_RIGHT, SHIFT_LEFT, AND, BIT_FIELD_S_EXTRACT, CONVERT_S_TO_F = 194, 196, 199, 202, 111
UNPACK_HALF_2X16 = 62  # of GLSL.std.450
# They have literal operands, which may equal an id, and take no pointers to buffers.
WITHOUT_POINTERS = frozenset((8, EXT_INST, 79, COMPOSITE_EXTRACT, 82, 246, 247, 251))
TYPES = frozenset((19, TYPE_BOOL, 21, 22, 23, 24, 25, 28, 29, 30, 32, 33, 43, 44, 50, 51))
CAPABILITY_16_BIT_STORAGE, ROUNDING_MODE, TO_NEAREST_EVEN = 4433, 39, 0
SPIRV_1_3 = 0x10300  # from where on an extension is a part of it
GLSL_450 = struct.unpack("<4I", b"GLSL.std.450\0\0\0\0")
STORAGE_EXTENSION = struct.unpack("<6I", b"SPV_KHR_16bit_storage\0\0\0")


class StorageType(NamedTuple):
    """The elements of a block: their dtype, and whether words of 32 bits hold two each."""

    element: str  # "float16", "bfloat16" or, in words of four, "int8"
    in_words: bool = False


INT8 = StorageType("int8", in_words=True)


class NotRewritable(ShaderError):
    """A shader uses a block in another way than to load and store floats, or stores into words."""


@dataclass
class _Block:
    """A variable that is declared anew."""

    variable: int
    struct: int  # type of the block as it was
    type: StorageType
    storage: int  # class
    components: int  # of an element
    element: int = 0  # type of the array's elements
    scalar: int = 0  # type of their components


class _Element(NamedTuple):
    """A pointer to an element of a block, or to a component of one."""

    block: _Block
    place: int  # id of the element's index
    component: int | None


def rewrite(code: bytes, types: Mapping[int, StorageType]) -> bytes:
    """The module with blocks of these types at some bindings.

    Raises:
        NotRewritable: one is no array of floats, or is used in another way.
    """
    return _Rewriting(code, types).result()


def holds_floats(code: bytes, binding: int) -> bool:
    """Whether the blocks at a binding are arrays of floats, which may hold what else is read as floats."""
    try:
        _Rewriting(code, {binding: INT8})
    except NotRewritable:
        return False
    return True


class _Rewriting:
    """The module that is being written."""

    def __init__(self, code: bytes, types: Mapping[int, StorageType]) -> None:
        ops = parse(code)
        self.words = struct.unpack(f"<{len(code) // 4}I", code)
        self.tables = tabulate(ops)
        self.declared = Declarations(self.words[3], ops, self.tables)
        self.bool = next((args[0] for args in ops[TYPE_BOOL]), 0)
        self.glsl = next((args[0] for args in ops[IMPORT]), 0)
        self.constants: dict[tuple[int, int], int] = {}
        self.decorations: list[int] = []
        self.body: list[int] = []
        self.native = any(not one.in_words for one in types.values())
        elements = {args[0]: args[1] for args in ops[SpirvOp.TYPE_RUNTIME_ARRAY]}
        self.blocks = {
            args[1]: self._block(args, elements, types[_binding(self.tables, args[1])])
            for args in ops[SpirvOp.VARIABLE]
            if _binding(self.tables, args[1]) in types
        }
        self.chains: dict[int, _Element] = {}

    def result(self) -> bytes:
        head, imports = self._head(), list[int]()
        needs_glsl = any(b.type == StorageType("float16", in_words=True) for b in self.blocks.values())
        if needs_glsl and not self.glsl:
            self.glsl = self.declared.id()
            imports = instruction(IMPORT, self.glsl, *GLSL_450)
        for block in self.blocks.values():
            self._declare(block)
        in_function = False
        for opcode, at, end in instructions(self.words):
            in_function = in_function or opcode == SpirvOp.FUNCTION
            if in_function:
                self._rewrite(opcode, self.words[at + 1 : end], self.words[at:end])
        extension = list[int]()
        if self.native:
            capability = instruction(SpirvOp.CAPABILITY, CAPABILITY_16_BIT_STORAGE)
            head[0] = capability + head[0]
            if self.words[1] < SPIRV_1_3:
                extension = instruction(EXTENSION, *STORAGE_EXTENSION)
        capabilities, names, types = head
        words = [
            *self.words[:3], self.declared.bound, *self.words[4:HEADER_WORDS], *capabilities, *extension,
            *imports, *names, *self.decorations, *types, *self.declared.words, *self.body,
        ]  # fmt: skip
        return struct.pack(f"<{len(words)}I", *words)

    def _head(self) -> list[list[int]]:
        """The parts before functions: capabilities and extensions; names and decorations; types."""
        parts: list[list[int]] = [[], [], []]
        part = 0
        for opcode, at, end in instructions(self.words):
            if opcode == SpirvOp.FUNCTION:
                return parts
            part = max(part, 2 if opcode in TYPES else 0 if opcode in (SpirvOp.CAPABILITY, EXTENSION) else 1)
            operands = self.words[at + 1 : end]
            if opcode == SpirvOp.VARIABLE and operands[1] in self.blocks:
                continue
            if opcode == SpirvOp.CAPABILITY and operands[0] == CAPABILITY_16_BIT_STORAGE and self.native:
                continue
            parts[part] += self.words[at:end]
        return parts

    def _block(self, args: Sequence[int], elements: dict[int, int], type: StorageType) -> _Block:
        tables = self.tables
        pointer, variable, storage = args[:3]
        struct_type = tables.types[pointer][1][1]
        members = tables.types[struct_type][1]
        element = elements.get(members[0]) if len(members) == 1 else None
        if element is None or storage not in (StorageClass.UNIFORM, StorageClass.STORAGE_BUFFER):
            raise NotRewritable(f"binding {_binding(tables, variable)} is no array")
        op, operands = tables.types[element]
        count = 1
        if op == SpirvOp.TYPE_VECTOR:
            count = operands[1]
            op, operands = tables.types[operands[0]]
        counts = (1, 4) if type == INT8 else (1, 2, 4)
        if op != SpirvOp.TYPE_FLOAT or operands[0] != 32 or count not in counts:
            raise NotRewritable(f"binding {_binding(tables, variable)} is no array of floats")
        return _Block(variable, struct_type, type, storage, count)

    # Types and constants

    def uint(self, count: int = 1) -> int:
        scalar = self.declared.type(SpirvOp.TYPE_INT, 32, 0)
        return scalar if count == 1 else self.declared.type(SpirvOp.TYPE_VECTOR, scalar, count)

    def float(self, count: int = 1) -> int:
        scalar = self.declared.type(SpirvOp.TYPE_FLOAT, 32)
        return scalar if count == 1 else self.declared.type(SpirvOp.TYPE_VECTOR, scalar, count)

    def bools(self, count: int) -> int:
        if not self.bool:
            self.bool = self.declared.type(TYPE_BOOL)
        return self.bool if count == 1 else self.declared.type(SpirvOp.TYPE_VECTOR, self.bool, count)

    def constant(self, value: int, count: int = 1) -> int:
        if (value, count) not in self.constants:
            parts = (value,) if count == 1 else (self.constant(value),) * count
            kind, id = self.uint(count), self.declared.id()
            opcode = SpirvOp.CONSTANT if count == 1 else SpirvOp.CONSTANT_COMPOSITE
            self.declared.words += instruction(opcode, kind, id, *parts)
            self.constants[value, count] = id
        return self.constants[value, count]

    def _declare(self, block: _Block) -> None:
        """Declare a block with elements of its new type, decorated as it was."""
        declared, tables, count = self.declared, self.tables, block.components
        if block.type == INT8:
            block.scalar = block.element = self.uint()
            nbytes = 4
        elif block.type.in_words:
            block.scalar = self.uint()
            block.element, nbytes = (self.uint(2), 8) if count == 4 else (self.uint(), 4)
        else:
            is_float = block.type.element == "float16"
            kind = (SpirvOp.TYPE_FLOAT, 16) if is_float else (SpirvOp.TYPE_INT, 16, 0)
            block.scalar = block.element = declared.type(*kind)
            if count > 1:
                block.element = declared.type(SpirvOp.TYPE_VECTOR, block.scalar, count)
            nbytes = 2 * count
        array, whole = declared.id(), declared.id()
        self.decorations += instruction(SpirvOp.DECORATE, array, Decoration.ARRAY_STRIDE, nbytes)
        for what in tables.decorations[block.struct]:
            self.decorations += instruction(SpirvOp.DECORATE, whole, what)
        for what in tables.members[block.struct, 0]:
            value = (0,) if what == Decoration.OFFSET else ()
            self.decorations += instruction(SpirvOp.MEMBER_DECORATE, whole, 0, what, *value)
        declared.words += instruction(SpirvOp.TYPE_RUNTIME_ARRAY, array, block.element)
        declared.words += instruction(SpirvOp.TYPE_STRUCT, whole, array)
        pointer = declared.type(SpirvOp.TYPE_POINTER, block.storage, whole)
        declared.words += instruction(SpirvOp.VARIABLE, pointer, block.variable, block.storage)

    # Instructions

    def emit(self, opcode: int, type: int, *operands: int, result: int = 0) -> int:
        """Write an instruction, and return the id of its result."""
        result = result or self.declared.id()
        self.body += instruction(opcode, type, result, *operands)
        return result

    def _rewrite(self, opcode: int, operands: Sequence[int], whole: Sequence[int]) -> None:
        if opcode in (ACCESS_CHAIN, IN_BOUNDS_ACCESS_CHAIN) and operands[2] in self.blocks:
            self._point(opcode, operands)
        elif opcode == LOAD and operands[2] in self.chains:
            self._load(self.chains[operands[2]], operands[2], operands[1])
        elif opcode == STORE and operands[0] in self.chains:
            self._store(self.chains[operands[0]], operands[0], operands[1])
        elif opcode not in WITHOUT_POINTERS and any(
            id in self.blocks or id in self.chains for id in operands
        ):
            raise NotRewritable(f"instruction {opcode} takes a block")
        else:
            self.body += whole

    def _point(self, opcode: int, operands: Sequence[int]) -> None:
        _, id, variable, member, *rest = operands
        if not rest:
            raise NotRewritable("a pointer to a whole array")
        index, component = rest[0], rest[1] if len(rest) > 1 else None
        block = self.blocks[variable]
        self.chains[id] = _Element(block, index, component)
        target, path = block.element, [index]
        if not block.type.in_words and component is not None:
            target, path = block.scalar, [index, component]
        if block.type.in_words and block.components == 1:
            bits = 2 if block.type == INT8 else 1  # of the place in a word
            path = [self.emit(SHIFT_RIGHT, self.uint(), index, self.constant(bits))]
        pointer = self.declared.type(SpirvOp.TYPE_POINTER, block.storage, target)
        self.emit(opcode, pointer, variable, member, *path, result=id)

    def _load(self, chain: _Element, pointer: int, result: int) -> None:
        block, is_half = chain.block, chain.block.type.element == "float16"
        if not block.type.in_words:
            one = block.components == 1 or chain.component is not None
            count, kind = (1, block.scalar) if one else (block.components, block.element)
            value = self.emit(LOAD, kind, pointer)
            if is_half:
                self.emit(F_CONVERT, self.float(count), value, result=result)
            else:
                wide = self.emit(U_CONVERT, self.uint(count), value)
                self._float_of_upper(wide, count, result)
            return
        word = self.emit(LOAD, block.element, pointer)
        if block.type == INT8:
            self._load_int8(chain, word, result)
            return
        if block.components == 1:
            odd = self.emit(AND, self.uint(), chain.place, self.constant(1))
            shift = self.emit(SHIFT_LEFT, self.uint(), odd, self.constant(4))
            half = self.emit(SHIFT_RIGHT, self.uint(), word, shift)
            if is_half:
                pair = self._unpacked(half)
                self.emit(COMPOSITE_EXTRACT, self.float(), pair, 0, result=result)
            else:
                self._float_of_upper(half, 1, result)
            return
        words = [word]
        if block.components == 4:
            words = [self.emit(COMPOSITE_EXTRACT, self.uint(), word, i) for i in range(2)]
        whole = result if chain.component is None else self.declared.id()
        if is_half and len(words) == 1:
            self._unpacked(words[0], whole)
        elif is_half:
            self.emit(COMPOSITE_CONSTRUCT, self.float(4), *map(self._unpacked, words), result=whole)
        else:
            halves = [half for one in words for half in self._upper_halves(one)]
            bits = self.emit(COMPOSITE_CONSTRUCT, self.uint(block.components), *halves)
            self.emit(BITCAST, self.float(block.components), bits, result=whole)
        if chain.component is not None:
            self.emit(VECTOR_EXTRACT_DYNAMIC, self.float(), whole, chain.component, result=result)

    def _load_int8(self, chain: _Element, word: int, result: int) -> None:
        int32 = self.declared.type(SpirvOp.TYPE_INT, 32, 1)
        signed = self.emit(BITCAST, int32, word)

        def number(shift: int, result: int = 0) -> int:
            byte = self.emit(BIT_FIELD_S_EXTRACT, int32, signed, shift, self.constant(8))
            return self.emit(CONVERT_S_TO_F, self.float(), byte, result=result)

        if chain.block.components == 1:
            place = self.emit(AND, self.uint(), chain.place, self.constant(3))
            number(self.emit(SHIFT_LEFT, self.uint(), place, self.constant(3)), result)
            return
        whole = result if chain.component is None else self.declared.id()
        numbers = [number(self.constant(shift)) for shift in (0, 8, 16, 24)]
        self.emit(COMPOSITE_CONSTRUCT, self.float(4), *numbers, result=whole)
        if chain.component is not None:
            self.emit(VECTOR_EXTRACT_DYNAMIC, self.float(), whole, chain.component, result=result)

    def _unpacked(self, word: int, result: int = 0) -> int:
        """The two floats of a word."""
        return self.emit(EXT_INST, self.float(2), self.glsl, UNPACK_HALF_2X16, word, result=result)

    def _upper_halves(self, word: int) -> tuple[int, int]:
        """The bits of the floats of which a word holds the upper halves."""
        low = self.emit(SHIFT_LEFT, self.uint(), word, self.constant(16))
        return low, self.emit(AND, self.uint(), word, self.constant(0xFFFF0000))

    def _float_of_upper(self, bits: int, count: int, result: int) -> None:
        moved = self.emit(SHIFT_LEFT, self.uint(count), bits, self.constant(16, count))
        self.emit(BITCAST, self.float(count), moved, result=result)

    def _store(self, chain: _Element, pointer: int, value: int) -> None:
        block = chain.block
        if block.type.in_words:
            raise NotRewritable("a store into words")
        one = block.components == 1 or chain.component is not None
        count, kind = (1, block.scalar) if one else (block.components, block.element)
        if block.type.element == "float16":
            stored = self.emit(F_CONVERT, kind, value)
            self.decorations += instruction(SpirvOp.DECORATE, stored, ROUNDING_MODE, TO_NEAREST_EVEN)
        else:
            uint = self.uint(count)
            bits = self.emit(BITCAST, uint, value)
            half = self.emit(SHIFT_RIGHT, uint, bits, self.constant(16, count))
            even = self.emit(AND, uint, half, self.constant(1, count))
            more = self.emit(I_ADD, uint, bits, self.constant(0x7FFF, count))
            rounded = self.emit(I_ADD, uint, more, even)
            size = self.emit(AND, uint, bits, self.constant(0x7FFFFFFF, count))
            infinite = self.constant(0x7F800000, count)
            is_nan = self.emit(U_GREATER_THAN, self.bools(count), size, infinite)
            kept = self.emit(SELECT, uint, is_nan, self.constant(0x7FC00000, count), rounded)
            upper = self.emit(SHIFT_RIGHT, uint, kept, self.constant(16, count))
            stored = self.emit(U_CONVERT, kind, upper)
        self.body += instruction(STORE, pointer, stored)


def _binding(tables: Tables, variable: int) -> int:
    return tables.decorations[variable].get(Decoration.BINDING, -1)
