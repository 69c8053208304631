"""One dispatch for many tensors, where a dispatch for each would take longer to ask for than to run.

No device binds the memory of many tensors one by one. But the pool cuts tensors out of few large buffers. So
a dispatch binds for each role that tensors play in a kernel (gradient, parameter) the span of one buffer from
the first of them that lies there to the last, and a table that says where each of them begins. Tensors of
other buffers take another dispatch. What is planned is kept: a loop often finds its tensors in the same
places again.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dl4all.allocator.allocation import Piece, aligned
from dl4all.allocator.storage import Storage
from dl4all.ops.core.launch import MAX_GRID_SIZE, ceil_div
from dl4all.ops.core.tensor_base import TensorBase
from dl4all.runtime.protocols import Span
from dl4all.scheduler.device import Device

Job = tuple[TensorBase, ...]
"""The tensors of one piece of work, one for each role: contiguous, of float32, with as many elements."""

EACH = 1024  # elements that a workgroup goes through
MOST_ROWS = MAX_GRID_SIZE // 2  # so many tensors and all of their elements never need more workgroups
LEAST_SAVED = 8  # dispatches; to plan and to write a table takes as long as asking for so many
ROW = 5  # words of the table: the first workgroup, the elements, and a place for each of 3 roles

Window = tuple[int, int]
"""The first byte of a piece of a buffer, and the end."""


class Role(NamedTuple):
    """What a kernel does with one tensor of each job.

    ``width`` is how many values it keeps there for each element, one after another for all elements.
    """

    written: bool
    width: int = 1


class Batch(NamedTuple):
    """The jobs of one dispatch, by their numbers, and what it binds: a table, and a span for each role.

    ``rows`` begins its push constants: from which row of the table on, to which, and how much of a tensor a
    workgroup does.
    """

    jobs: tuple[int, ...]
    table: Storage
    rows: tuple[int, int, int]
    spans: tuple[Storage, ...]
    groups: int


class Plan(NamedTuple):
    """Who goes together, and who alone."""

    batches: tuple[Batch, ...]
    alone: tuple[int, ...]


class MultiTensor:
    """Plans jobs, and keeps the last plan of each list. Copies and pickles of it begin without any.

    >>> import dl4all as dl
    >>> x = dl.tensor([1.0, 2.0], device="cpu")
    >>> MultiTensor().plan([(x,)], [Role(written=True)])
    Plan(batches=(), alone=(0,))
    """

    def __init__(self) -> None:
        self._known: dict[Hashable, tuple[list[Any], Plan]] = {}
        self._tables: dict[tuple[Device, Hashable], Storage] = {}

    def __reduce__(self) -> tuple[type[MultiTensor], tuple[()]]:
        return MultiTensor, ()

    def plan(self, jobs: Sequence[Job], roles: Sequence[Role], slot: Hashable = None) -> Plan:
        """Who of the jobs goes together.

        Args:
            jobs: all of one device, each with at least one element.
            roles: of the tensors of each job.
            slot: which list of jobs this is, if there are several.
        """
        if len(jobs) == 1 or not jobs[0][0].device.alignment:
            return Plan((), tuple(range(len(jobs))))
        key: list[Any] = [*roles, *[job[-1].shape for job in jobs]]
        key += [place for job in jobs for tensor in job for place in (tensor.storage.span, tensor.offset)]
        known = self._known.get(slot)
        if known is not None and known[0] == key:
            return known[1]
        plan = self._planned(jobs, roles, slot)
        self._known[slot] = key, plan
        return plan

    def _planned(self, jobs: Sequence[Job], roles: Sequence[Role], slot: Hashable) -> Plan:
        device = jobs[0][0].device
        places = [_windows(job, roles) for job in jobs]
        if _overlap(jobs, roles, places):
            return Plan((), tuple(range(len(jobs))))
        bins, alone = _bins(jobs, places)
        if sum(len(one.jobs) - 1 for one in bins) < LEAST_SAVED:
            return Plan((), tuple(range(len(jobs))))
        # In memory that stays: with tables that come and go, small tensors would never find the same places.
        nbytes = 4 * ROW * len(jobs)
        table = self._tables.get((device, slot))
        if table is None or table.nbytes < nbytes:
            table = self._tables[device, slot] = device.allocate(nbytes, "table")
        rows = np.zeros((sum(len(one.jobs) for one in bins), ROW), np.uint32)
        batches, start = list[Batch](), 0
        for one in bins:
            batches.append(_batch(one, jobs, roles, places, table, rows, start))
            start += len(one.jobs)
        device.write(table, rows)
        return Plan(tuple(batches), alone)


def side_by_side(device: Device, sizes: Sequence[int]) -> list[Storage]:
    """Memory of so many bytes each for tensors that go together: in as few buffers as can be.

    Each piece of a buffer goes back when nothing in it is in use any more.

    Raises:
        OutOfMemoryError
    """
    if not device.alignment:
        return [device.allocate(nbytes) for nbytes in sizes]
    limits = device.info.limits
    most = min(limits.storage_buffer_range, limits.allocation_size)
    parts, room = list[list[int]](), 0
    for nbytes in sizes:
        size = aligned(nbytes, device.alignment)
        if not parts or size > room:
            parts.append([])
            room = most
        parts[-1].append(nbytes)
        room -= size
    return [storage for part in parts for storage in _cut(device, part)]


def _cut(device: Device, sizes: Sequence[int]) -> list[Storage]:
    places = [0, *itertools.accumulate(aligned(nbytes, device.alignment) for nbytes in sizes)]
    whole = device.allocate(places[-2] + sizes[-1])
    buffer, start, _ = whole.span

    def release(piece: Piece, whole: Storage = whole) -> None:
        """Nothing but to keep the whole until then: it goes back by itself."""

    return [
        Storage(Span(buffer, start + place, aligned(nbytes, 4)), nbytes, whole.piece, release)
        for place, nbytes in zip(places, sizes, strict=False)
    ]


class _Bin:
    """Jobs that go together: a span for each role reaches all of their tensors."""

    def __init__(self) -> None:
        self.jobs: list[int] = []
        self.windows: list[Window] = []

    def takes(self, number: int, windows: list[Window], limit: int) -> bool:
        """Add a job, if what is to be bound does not become too large."""
        if self.jobs:
            both = zip(self.windows, windows, strict=True)
            windows = [(min(a, first), max(b, last)) for (a, b), (first, last) in both]
        if len(self.jobs) == MOST_ROWS or any(last - first > limit for first, last in windows):
            return False
        self.jobs.append(number)
        self.windows = windows
        return True


def _bins(jobs: Sequence[Job], places: Sequence[Sequence[Window]]) -> tuple[list[_Bin], tuple[int, ...]]:
    """Several jobs each, and who is left."""
    device = jobs[0][0].device
    limit, mask = device.info.limits.storage_buffer_range, -device.alignment
    bins: dict[tuple[Any, ...], list[_Bin]] = {}
    alone: list[int] = []
    for number, job in enumerate(jobs):
        windows = [(first & mask, last) for first, last in places[number]]
        fits = all(last - first <= limit for first, last in windows)
        if not fits or not all(device.joins(tensor.storage) for tensor in job):
            alone.append(number)
            continue
        similar = bins.setdefault(tuple(tensor.storage.buffer for tensor in job), [])
        if not any(one.takes(number, windows, limit) for one in similar):
            similar.append(_Bin())
            similar[-1].takes(number, windows, limit)
    found = [one for similar in bins.values() for one in similar]
    alone += [one.jobs[0] for one in found if len(one.jobs) == 1]
    return [one for one in found if len(one.jobs) > 1], tuple(sorted(alone))


def _windows(job: Job, roles: Sequence[Role]) -> list[Window]:
    """Where the tensors of a job lie in their buffers."""
    nbytes = 4 * job[-1].numel()
    starts = [tensor.storage.span.offset + 4 * tensor.offset for tensor in job]
    return [(start, start + role.width * nbytes) for start, role in zip(starts, roles, strict=True)]


def _overlap(jobs: Sequence[Job], roles: Sequence[Role], places: Sequence[Sequence[Window]]) -> bool:
    """Whether something is written that another job, or another role, has to do with too."""
    ordered = sorted(
        (id(tensor.storage.buffer), *window, role.written)
        for job, windows in zip(jobs, places, strict=True)
        for tensor, window, role in zip(job, windows, roles, strict=True)
    )
    buffer, end, end_written = 0, 0, 0
    for place, first, last, written in ordered:
        if place != buffer:
            buffer, end, end_written = place, 0, 0
        if first < (end if written else end_written):
            return True
        end = max(end, last)
        if written:
            end_written = max(end_written, last)
    return False


def _batch(
    one: _Bin,
    jobs: Sequence[Job],
    roles: Sequence[Role],
    places: Sequence[Sequence[Window]],
    table: Storage,
    rows: npt.NDArray[np.uint32],
    start: int,
) -> Batch:
    """A dispatch, and its rows of the table from `start` on."""
    sizes = [jobs[number][-1].numel() for number in one.jobs]
    each = EACH
    while sum(ceil_div(n, each) for n in sizes) > MAX_GRID_SIZE:
        each *= 2
    group = 0
    for row, (number, n) in enumerate(zip(one.jobs, sizes, strict=True), start):
        ats = [(first - low) // 4 for (first, _), (low, _) in zip(places[number], one.windows, strict=True)]
        rows[row, : 2 + len(ats)] = (group, n, *ats)
        group += ceil_div(n, each)
    spans = tuple(
        Storage(Span(tensor.storage.buffer, low, high - low), min(4 * role.width * sum(sizes), high - low))
        for tensor, role, (low, high) in zip(jobs[one.jobs[0]], roles, one.windows, strict=True)
    )
    return Batch(tuple(one.jobs), table, (start, start + len(sizes), each), spans, group)
