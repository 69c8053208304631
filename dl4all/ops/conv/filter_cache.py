"""Filters as algorithms of convolution want them, and keeping them.

To transform filters for Winograd's algorithm costs more than to convolve one small image with them, so those
of a network that is no longer trained are transformed once. They are kept as long as the memory that they
were made of lives and is not changed, and until memory runs out.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable, Hashable

from dl4all.allocator.storage import Storage
from dl4all.ops.conv.problem import Problem
from dl4all.ops.core.launch import ceil_div, pack, run, shader, strided_grid
from dl4all.ops.core.op import empty
from dl4all.ops.core.tensor_base import TensorBase
from dl4all.ops.memory.copy import copy_into
from dl4all.runtime.spirv import Shader
from dl4all.scheduler.programs import Launch

FILTERS = {
    (tile, turn): shader("conv/winograd_filter.comp", TILE=tile, TURN=int(turn))
    for tile in (2, 4)
    for turn in (False, True)
}
SUM = shader("conv/sum.comp")

WORKGROUP = 64  # invocations
USES = 3
"""How often something is made of unchanged filters until it is kept: not for a step of training, which may
convolve twice with the same ones where activations are computed again."""


class _Made:
    """What was made of one memory's content."""

    def __init__(self, version: int) -> None:
        self.version = version  # of that content
        self.uses: Counter[Hashable] = Counter()
        self.tensors: dict[Hashable, TensorBase] = {}


class Kept:
    """Tensors that were made of others, each until that one's memory changes or is gone."""

    def __init__(self) -> None:
        self.uses = USES
        self._made: weakref.WeakKeyDictionary[Storage, _Made] = weakref.WeakKeyDictionary()

    def get(self, source: TensorBase, key: Hashable, make: Callable[[], TensorBase]) -> TensorBase:
        """What `make` makes of `source` as it is now; it is kept if that is asked for often."""
        storage = source.storage
        made = self._made.get(storage)
        if made is None or made.version != storage.version:
            made = self._made[storage] = _Made(storage.version)
        kept = None if storage.shown else made.tensors.get(key)
        if kept is not None:
            return kept
        tensor = make()
        made.uses[key] += 1
        if made.uses[key] >= self.uses and not storage.shown:
            made.tensors[key] = tensor
        return tensor

    def forget(self) -> None:
        """Give the memory back, and be slower to take it again."""
        self._made.clear()
        self.uses *= 4


def kept(source: TensorBase) -> Kept:
    """What is kept on the device of a tensor."""
    device = source.device
    if "kept" not in device.tables:
        device.tables["kept"] = made = Kept()
        device.pool.caches.append(made.forget)
    found: Kept = device.tables["kept"]
    return found


def transformed(w: TensorBase, q: Problem, tile: int, turn: bool) -> TensorBase:
    """One matrix for each element of a transformed filter: a row for each filter of `q`, a column for each
    channel, rows a multiple of 4 apart.

    Args:
        w: 3x3 filters, contiguous.
        q: the convolution that they are for.
        tile: results along each side of a tile.
        turn: `w` are the filters of the convolution whose input's gradient `q` is.

    Shape:
        ((tile + 2) ** 2, filters, columns)
    """

    def make() -> TensorBase:
        pitch = ceil_div(q.channels, 4) * 4
        found = _empty(w, (tile + 2) ** 2, q.filters, pitch)
        push = pack(q.filters, q.channels, pitch, q.filters * pitch, w.offset)
        run_plane(FILTERS[tile, turn], q.filters, q.channels, push, w, found)
        return found

    return kept(w).get(w, (w.offset, q.filters, q.channels, tile, turn), make)


def run_plane(code: Shader, rows: int, columns: int, push: bytes, *tensors: TensorBase) -> None:
    """Launch a kernel with an invocation for each column and row, side by side along both where there are
    few columns; its workgroup's sizes are the constants."""
    wide = min(WORKGROUP, max(8, 1 << (columns - 1).bit_length()))
    high = WORKGROUP // wide
    groups = (ceil_div(columns, wide), ceil_div(rows, high), 1)
    device = tensors[0].device
    device.launch(Launch(code, groups, push, (wide, high)), *(tensor.storage for tensor in tensors))


def add_up(out: TensorBase, slots: TensorBase, size: int, count: int, offset: int) -> None:
    """Fill `size` elements of `out` from `offset` on with the sum of `count` slots."""
    groups = strided_grid(size, WORKGROUP)
    run(SUM, groups, pack(size, count, offset, groups[0] * WORKGROUP), slots, out)


def aligned(w: TensorBase, q: Problem) -> TensorBase:
    """A row for each filter, in which it can be read four elements at a time; `w` itself where it can be.

    Shape:
        (filters, columns)
    """

    def rows(filters: TensorBase, apart: int = q.inner) -> TensorBase:
        made: TensorBase = filters.as_strided((q.filters, q.inner), (apart, 1), filters.offset)
        return made

    pitch = ceil_div(q.inner, 4) * 4
    if pitch == q.inner and w.offset % 4 == 0:
        return rows(w)

    def make() -> TensorBase:
        found = _empty(w, q.filters, pitch)
        copy_into(rows(found, pitch), rows(w))
        return found

    return kept(w).get(w, (w.offset, q.filters, q.inner), make)


def _empty(w: TensorBase, *shape: int) -> TensorBase:
    made: TensorBase = empty(type(w).result_class, shape, w.dtype, w.device, "conv filters")
    return made
