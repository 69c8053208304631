"""The groups of a program: which instructions follow each other on tiles that stay in the scratchpad."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from dl4all.graph.accelerator.boxes import resplit
from dl4all.graph.accelerator.model import Hardware
from dl4all.graph.accelerator.tile_group import TileGroup
from dl4all.graph.accelerator.tile_sizes import estimated_cycles
from dl4all.graph.op_codes.emitter import Line
from dl4all.graph.op_codes.instruction import Register
from dl4all.graph.op_codes.opcode import CODES, ELEMENTWISE, OPCODES
from dl4all.graph.op_codes.validity import end_of


def grouped(
    lines: Sequence[Line], inputs: Sequence[Register], outputs: Sequence[Register], hardware: Hardware
) -> Iterator[TileGroup]:
    """The groups of instructions whose results matter, in their order.

    Args:
        lines: on tensors in DRAM.
        inputs: what another run finds with other contents.
        outputs: what is read when the program has run.
        hardware: whose scratchpad the groups' tiles fit into.

    Raises:
        ArgumentError: the scratchpad is too small for an instruction.
    """
    kept = constants_first(live(lines, outputs), inputs)
    readers = _Readers(kept, outputs)
    first = 0
    while first < len(kept):
        group = TileGroup((kept[first],), readers.stored(first, first + 1))
        end = first + 1
        while end < len(kept):
            line = _joined(group, kept[end])
            if line is None:
                break
            longer = TileGroup((*group.lines, line), readers.stored(first, end + 1))
            apart = (group, TileGroup((kept[end],), readers.stored(end, end + 1)))
            if estimated_cycles(longer, hardware) > sum(estimated_cycles(one, hardware) for one in apart):
                break
            group, end = longer, end + 1
        yield group
        first = end


def live(lines: Sequence[Line], outputs: Sequence[Register]) -> list[Line]:
    """The instructions whose results another one or the outside reads."""
    reads = [_words(one) for one in outputs]
    kept: list[Line] = []
    for line in reversed(lines):
        result = _words(line.result)
        if any(_meet(result, other) for other in reads):
            kept.append(line)
            reads += [_words(one) for one in line.reads]
    return kept[::-1]


def constants_first(lines: Sequence[Line], inputs: Sequence[Register]) -> list[Line]:
    """The instructions on weights and numbers alone before all others.

    A scale that follows from statistics would otherwise stand between a convolution and what takes it.
    """
    early: list[Line] = []
    late: list[Line] = []
    touched: list[tuple[int, int]] = []  # words that later instructions read, or write
    written = [_words(one) for one in inputs]  # and words that later instructions write
    for line in lines:
        reads = [_words(one) for one in line.reads]
        result = _words(line.result)
        varies = any(_meet(one, other) for one in reads for other in written)
        if varies or any(_meet(result, other) for other in touched):
            late.append(line)
            written.append(result)
            touched += [result, *reads]
        else:
            early.append(line)
    return [*early, *late]


def _meet(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return one[0] < other[1] and other[0] < one[1]


def _words(register: Register) -> tuple[int, int]:
    return register.offset, end_of(register)


class _Readers:
    """Which words each instruction reads."""

    def __init__(self, lines: Sequence[Line], outputs: Sequence[Register]) -> None:
        self._lines = lines
        reads = [(number, *_words(one)) for number, line in enumerate(lines) for one in line.reads]
        reads += [(len(lines), *_words(one)) for one in outputs]
        self._number, self._first, self._end = np.array(reads, np.int64).reshape(-1, 3).T

    def stored(self, first: int, end: int) -> frozenset[int]:
        """Of the instructions `first` to `end` - 1, counted from `first`: those that later ones read."""
        found = set()
        for number in range(first, end):
            start, stop = _words(self._lines[number].result)
            if bool(np.any((self._number >= end) & (self._first < stop) & (start < self._end))):
                found.add(number - first)
        return frozenset(found)


def _joined(group: TileGroup, line: Line) -> Line | None:
    """An instruction as it runs on a group's tiles; None if it cannot."""
    sizes, kind = group.sizes, OPCODES[CODES[line.name]].kind
    if kind in ELEMENTWISE and line.result.sizes[:3] != sizes[:3]:
        known = dict.fromkeys(one.result.sizes for one in reversed(group.lines))
        split = next((found for one in known if (found := resplit(line, one)) is not None), None)
        if split is None:
            return None
        line = split
    if line.result.sizes[:3] != sizes[:3] or kind not in (*ELEMENTWISE, "reduction", "product"):
        return None
    made = [one.result for one in group.lines]
    if not any(one in made for one in line.reads):
        return None
    if kind == "product" and (line.operands[1] in made or line.operands[0] not in made):
        return None
    if any(one not in made and _overlap(one, other) for one in line.reads for other in made):
        return None
    if any(one != line.result and _overlap(one, line.result) for one in made):
        return None
    for other in group.lines:
        in_step = OPCODES[CODES[other.name]].kind in ELEMENTWISE
        for one in other.reads:
            # What an earlier instruction reads may be written over by one that walks with it, tile by tile.
            if _overlap(one, line.result) and not (in_step and one == line.result):
                return None
    return line


def _overlap(one: Register, other: Register) -> bool:
    return _meet(_words(one), _words(other))
