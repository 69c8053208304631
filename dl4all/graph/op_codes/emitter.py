"""Collects the instructions of a program while nodes of a graph are taken apart.

Each buffer that they touch gets a place in the arena, where it stays; those that come from outside are loaded
before the first instruction, and those that are wanted outside are stored after the last.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from dl4all.graph.ir.graph import Graph, Shape, Value, VaryingWord, is_private, readers
from dl4all.graph.ir.graph import Operand as TensorView
from dl4all.graph.op_codes.instruction import AXES, PARAMETERS, Register, SlidingWindow, register
from dl4all.graph.op_codes.validity import end_of

WORD_DTYPES = ("float32", "int32", "uint32")


class Unsupported(Exception):
    """Why a node has no instructions."""


class ParameterWord(NamedTuple):
    """A number that a replay computes anew, by its position among those."""

    position: int


Source: TypeAlias = Register | ParameterWord | float


class Line(NamedTuple):
    """An instruction whose operands have no numbers yet, and the op that it is a part of."""

    name: str
    result: Register
    operands: tuple[Source, ...]
    window: SlidingWindow | None = None
    op: str = ""

    @property
    def reads(self) -> list[Register]:
        """The operands that are registers."""
        return [one for one in self.operands if isinstance(one, Register)]


class Transfer(NamedTuple):
    """Words of a buffer outside, from `start` on, and where they lie in the arena."""

    buffer: int
    start: int
    register: Register


class Emitter:
    """The instructions so far.

    Args:
        graph: whose nodes are taken apart.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self.lines: list[Line] = []
        self.words = 0  # of the arena
        self.pieces: dict[int, tuple[Transfer, ...]] = {}  # of each buffer
        self.loads: list[int] = []  # buffers that are read before anything writes them
        self.written: dict[int, None] = {}  # buffers
        self.parameters: list[tuple[VaryingWord, float]] = []
        self._defined: set[int] = set()

    # Memory

    def is_scratch(self, value: Value) -> bool:
        """Whether no node reads a value, and nothing outside of the graph sees it: a kernel's own memory."""
        return is_private(self._graph, value) and value not in readers(self._graph)

    def reserve(self, words: int) -> int:
        """The first of so many new words."""
        start = self.words
        self.words += words
        return start

    def temporary(self, sizes: Sequence[int]) -> Register:
        """New contiguous memory."""
        return register(self.reserve(math.prod(sizes)), sizes)

    def place(self, buffer: int, offsets: Sequence[int] | None = None) -> tuple[Transfer, ...]:
        """The place of a buffer in the arena.

        Args:
            buffer: its number.
            offsets: where its parts, of equal sizes, are to lie, if that is not decided already.

        Raises:
            Unsupported: it does not consist of whole words, or lies elsewhere.
        """
        if buffer not in self.pieces:
            words = self.words_of(buffer)
            starts = [self.reserve(words)] if offsets is None else offsets
            size = words // len(starts)
            self.pieces[buffer] = tuple(
                Transfer(buffer, part * size, register(start, (size,))) for part, start in enumerate(starts)
            )
        return self.pieces[buffer]

    def words_of(self, buffer: int) -> int:
        """The size of a buffer.

        Raises:
            Unsupported: it does not consist of whole words.
        """
        nbytes = self._graph.buffers[buffer].nbytes
        if nbytes % 4 or not nbytes:
            raise Unsupported(f"has a buffer of {nbytes} bytes")
        return nbytes // 4

    def read(self, buffer: int) -> None:
        """Note that an instruction reads a buffer, which is loaded if nothing has written it before."""
        if buffer not in self._defined:
            self._defined.add(buffer)
            self.loads.append(buffer)

    def write(self, buffer: int, words: int) -> None:
        """Note that instructions write so many words of a buffer; the others are kept."""
        if 4 * words < self._graph.buffers[buffer].nbytes:
            self.read(buffer)
        self._defined.add(buffer)
        self.written[buffer] = None

    def view(self, tensor: TensorView, shape: Shape | None = None, strides: Shape | None = None) -> Register:
        """The register of a tensor, or of another view of its elements.

        Raises:
            Unsupported: its elements are no words, it has too many axes, or lies in two pieces.
        """
        if tensor.dtype not in WORD_DTYPES:
            raise Unsupported(f"has elements of {tensor.dtype}")
        pieces = self.place(tensor.value.buffer)
        if len(pieces) > 1:
            raise Unsupported("takes the state of an optimizer apart")
        sizes = tensor.shape if shape is None else shape
        if len(sizes) > AXES:
            raise Unsupported(f"has {len(sizes)} axes")
        steps = tensor.strides if strides is None else strides
        found = register(pieces[0].register.offset + tensor.offset, sizes, steps)
        if end_of(found) > end_of(pieces[0].register):
            raise Unsupported("has a view beyond its buffer")
        return found

    # Instructions

    def emit(
        self, name: str, result: Register, *operands: Source, window: SlidingWindow | None = None
    ) -> Register:
        """Append an instruction."""
        self.lines.append(Line(name, result, operands, window))
        return result

    def number(self, word: int, varying: VaryingWord | None) -> Source:
        """An operand with the bits of a push constant of 32 bits.

        Raises:
            Unsupported: it is half a number, or there are too many.
        """
        value = float(np.uint32(word).view(np.float32))
        if varying is None:
            return value
        if varying.half >= 0:
            raise Unsupported("takes numbers of 64 bits that change from call to call")
        key = varying._replace(offset=0)
        for position, (known, _) in enumerate(self.parameters):
            if known == key:
                return ParameterWord(position)
        if len(self.parameters) == PARAMETERS:
            raise Unsupported(f"takes more than {PARAMETERS} numbers that change from call to call")
        self.parameters.append((key, value))
        return ParameterWord(len(self.parameters) - 1)
