"""From instructions on whole tensors in DRAM to instructions on tiles in the scratchpad.

Instructions that follow each other on the same elements form a group: a convolution, its scale and shift and
its ReLU, or the two products of attention with the softmax between them. A group is computed tile by tile:
what a tile reads is copied into the scratchpad, all of the group's instructions run there, and what others
need goes back. Every stream of tiles has two places that it uses in turn, so that the next tile is copied
while this one is computed (double buffering), and the program says so: the copies for the next tile stand in
front of this one's instructions. A tile that stays the same is copied once.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import NamedTuple

from dl4all.errors import ArgumentError
from dl4all.graph.accelerator.boxes import (
    Box,
    depth_of,
    elements_of,
    most_elements,
    operand_box,
    part_of,
    scratch,
    window_of,
)
from dl4all.graph.accelerator.model import Hardware
from dl4all.graph.accelerator.tile_group import Stream, StreamKey, TileGroup, is_table
from dl4all.graph.accelerator.tile_sizes import Tiling, aligned, tiled
from dl4all.graph.op_codes.emitter import Line, Source
from dl4all.graph.op_codes.instruction import Axes, Register, Scratchpad


class TileStage(NamedTuple):
    """A tile, or a part of what its products sum over: what is copied for it, and the rest."""

    loads: list[Line]
    rest: list[Line]


def tile_lines(group: TileGroup, hardware: Hardware, scratchpad: Scratchpad) -> Iterator[list[Line]]:
    """The instructions of each tile of a group, behind the copies of what the next one reads.

    Raises:
        ArgumentError: even the smallest tile does not fit into the scratchpad.
    """
    found = tiled(group, hardware)
    if found is None:
        raise ArgumentError(
            f"[accelerator] {group.lines[0].name} with a result of {group.sizes} fits into no scratchpad of "
            f"{hardware.scratchpad} bytes, however it is cut; make it larger"
        )
    tiling, places = found[1], _ScratchpadPlaces(scratchpad)
    streams = {group.key_of(*one): _StreamTiles(group, one, places) for one in group.streams()}
    results: list[dict[int, Register]] = [{}, {}]
    waiting: list[Line] = []
    for number, tile in enumerate(_tiles(group.sizes, tiling)):
        for stage in _stages(group, tile, tiling.depth, streams, results[number % 2], places):
            yield [*stage.loads, *waiting]
            waiting = stage.rest
    yield waiting


def _tiles(sizes: Axes, tiling: Tiling) -> Iterator[Box]:
    starts = [range(0, sizes[axis], tiling.sizes[axis]) for axis in tiling.order]
    for found in itertools.product(*starts):
        start = dict(zip(tiling.order, found, strict=True))
        yield tuple((start[axis], min(tiling.sizes[axis], sizes[axis] - start[axis])) for axis in range(4))


class _ScratchpadPlaces:
    """Words of the scratchpad, one piece behind the other."""

    def __init__(self, scratchpad: Scratchpad) -> None:
        self._next, self._end = scratchpad.start, scratchpad.end

    def take(self, words: int) -> int:
        start = self._next
        self._next += aligned(words)
        assert self._next <= self._end, "the estimate has counted fewer words"
        return start


class _StreamTiles:
    """The tiles of an operand: two places that take turns, and what lies in the later one."""

    def __init__(self, group: TileGroup, stream: Stream, places: _ScratchpadPlaces) -> None:
        self._group, self._stream, self._places = group, stream, places
        self._slots: list[int] = []
        self._turn = 0
        self._last: tuple[Box, Register] | None = None

    def tile(self, box: Box, depth: tuple[int, int] | None, lines: list[Line]) -> Register:
        """The place of what a tile needs, which is copied unless it lies there already."""
        line = self._group.lines[self._stream.line]
        source = line.operands[self._stream.position]
        assert isinstance(source, Register)
        needed = operand_box(line, self._stream.position, box, depth)
        if self._last is not None and self._last[0] == needed:
            return self._last[1]
        if len(self._slots) <= self._turn:  # no later tile is larger
            self._slots.append(self._places.take(most_elements(line, self._stream.position, needed, box)))
        place = scratch(self._slots[self._turn], needed)
        self._turn = 1 - self._turn
        lines.append(Line("copy", place, (part_of(source, needed),), op=line.op))
        self._last = needed, place
        return place


def _stages(
    group: TileGroup,
    tile: Box,
    depth: int,
    streams: dict[StreamKey, _StreamTiles],
    slots: dict[int, Register],
    places: _ScratchpadPlaces,
) -> Iterator[TileStage]:
    stage = TileStage([], [])
    stores: list[Line] = []
    made: dict[Register, Register] = {}
    for number, line in enumerate(group.lines):
        box = group.box_of(number, tile)
        if number not in slots:
            slots[number] = scratch(places.take(elements_of(box)), box)
        result = scratch(slots[number].offset, box)
        whole_depth = depth_of(line)
        own = depth if number == 0 else whole_depth
        for start in range(0, whole_depth, own):
            part = None if own == whole_depth else (start, min(own, whole_depth - start))
            if start:
                yield stage
                stage = TileStage([], [])
            operands: list[Source] = []
            for position, operand in enumerate(line.operands):
                if not isinstance(operand, Register) or is_table(line, position):
                    operands.append(operand)
                elif operand in made:
                    operands.append(made[operand])
                else:
                    tiles = streams[group.key_of(number, position)]
                    operands.append(tiles.tile(box, part, stage.loads))
            if start:  # to what the parts before have summed
                operands = [*operands[:2], result]
            stage.rest.append(Line(line.name, result, tuple(operands), window_of(line, box), line.op))
        made[line.result] = result
        if number in group.stored:
            stores.append(Line("copy", part_of(line.result, box), (result,), op=line.op))
    yield TileStage(stage.loads, [*stage.rest, *stores])
