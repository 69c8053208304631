"""Multi-tensor apply: one dispatch for many small tensors, whose single dispatches would cost more than run.

A device cannot bind many tensors one by one, but the pool cuts tensors out of few large buffers. So for
each role that tensors play in a kernel (gradient, parameter) a dispatch binds the span of one buffer from the
first tensor in it to the last, and a table of the offsets of all tensors. Tensors in other buffers take
another dispatch. Plans are cached: a training loop often finds its tensors at the same addresses again.
"""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dl4all.allocator.allocation import aligned
from dl4all.allocator.storage import Storage
from dl4all.ops.core.kernels.launch import MAX_GRID_SIZE, ceil_div
from dl4all.ops.core.kernels.push_block import PushBlock
from dl4all.ops.core.tensor_base import TensorBase
from dl4all.ops.core.untracked import Untracked
from dl4all.runtime.protocols import Span
from dl4all.scheduler import listeners
from dl4all.scheduler.device.device import Device

Job = tuple[TensorBase, ...]
"""The tensors of one job, one for each role: contiguous, float32, as many elements as their roles say."""

ELEMENTS_PER_GROUP = 1024  # computed by a workgroup
MAX_ROWS = MAX_GRID_SIZE // 2  # large tensors always fit into the grid with more elements per group
MIN_SAVED_DISPATCHES = 8  # planning and writing a table takes as long as this many dispatches
MAX_SLOTS = 64  # lists of tensors whose plans a device keeps
ROW_WORDS = 8  # of the table: first workgroup, elements, and an offset for each of 6 roles

Window = tuple[int, int]
"""First byte and end of a range of a buffer."""

BATCH_ROWS = "uint first_row, last_row, workgroup_elements;"
"""The first push constants of a dispatch for many tensors."""
BATCH_PUSH = PushBlock(("optim/copy.comp", "optim/joined.comp"), BATCH_ROWS)


class Role(NamedTuple):
    """The use of one tensor of each job by a kernel.

    ``width`` is the number of values per element; the first values of all elements come first. With
    ``single`` the tensor has one element, whatever the others of its job have.
    """

    written: bool
    width: int = 1
    single: bool = False

    def values(self, elements: int) -> int:
        """The number of values of a tensor whose job has so many elements."""
        return 1 if self.single else self.width * elements


class TensorBatch(NamedTuple):
    """The jobs of one dispatch, by their numbers, and its bindings: a table, and a span for each role.

    ``rows`` begins its push constants: first row and end row of the table, and elements per workgroup.
    """

    jobs: tuple[int, ...]
    table: Storage
    rows: tuple[int, int, int]
    spans: tuple[Storage, ...]
    groups: int


class MultiTensorPlan(NamedTuple):
    """Jobs that share dispatches, and jobs that are dispatched alone."""

    batches: tuple[TensorBatch, ...]
    alone: tuple[int, ...]


class MultiTensor(Untracked):
    """Plans dispatches, and caches the last plan of each list of jobs. Copies and pickles start empty.

    >>> import dl4all as dl
    >>> x = dl.tensor([1.0, 2.0], device="cpu")
    >>> MultiTensor().plan([(x,)], [Role(written=True)])
    MultiTensorPlan(batches=(), alone=(0,))
    """

    def __init__(self) -> None:
        self._plans: dict[Hashable, tuple[list[Any], MultiTensorPlan]] = {}
        self._tables: dict[tuple[Device, Hashable], Storage] = {}

    def __reduce__(self) -> tuple[type[MultiTensor], tuple[()]]:
        return MultiTensor, ()

    def plan(
        self, jobs: Sequence[Job], roles: Sequence[Role], slot: Hashable = None, *, every: bool = False
    ) -> MultiTensorPlan:
        """Group jobs into dispatches.

        Args:
            jobs: all on one device, each with at least one element.
            roles: the role of each tensor of a job.
            slot: tells lists of jobs apart, if there are several.
            every: leave no job alone, even if that saves no dispatch, unless calls are captured.
        """
        for job in jobs:
            for tensor in job:
                tensor.storage.settle()  # a dispatch on their span would not wait for each of them
        # What is captured gets other memory, so that a table of these offsets would be wrong there.
        few = len(jobs) == 1 or not jobs[0][0].device.alignment
        if listeners.captured() or (few and not every):
            return MultiTensorPlan((), tuple(range(len(jobs))))
        key: list[Any] = [*roles, *[job[-1].shape for job in jobs]]
        key += [part for job in jobs for tensor in job for part in (tensor.storage.span, tensor.offset)]
        cached = self._plans.get(slot)
        if cached is not None and cached[0] == key:
            return cached[1]
        plan = (
            MultiTensorPlan(self.batches(jobs, roles, slot), ())
            if every
            else self._make_plan(jobs, roles, slot)
        )
        self._plans[slot] = key, plan
        return plan

    def _make_plan(self, jobs: Sequence[Job], roles: Sequence[Role], slot: Hashable) -> MultiTensorPlan:
        windows = [_windows(job, roles) for job in jobs]
        if _overlap(jobs, roles, windows):
            return MultiTensorPlan((), tuple(range(len(jobs))))
        groups, alone = _group_jobs(jobs, windows)
        if sum(len(group.jobs) - 1 for group in groups) < MIN_SAVED_DISPATCHES:
            return MultiTensorPlan((), tuple(range(len(jobs))))
        return MultiTensorPlan(self._write_table(groups, jobs, roles, windows, slot), alone)

    def batches(
        self, jobs: Sequence[Job], roles: Sequence[Role], slot: Hashable = None, group_elements: int = 0
    ) -> tuple[TensorBatch, ...]:
        """Dispatches of all jobs, even if they save little: those of a graph are planned once.

        Jobs that cannot share a dispatch have one of their own, with a row in the table.

        Args:
            jobs, roles, slot: as in :meth:`plan`.
            group_elements: how many elements a workgroup computes, if that must not depend on the jobs.
        """
        windows = [_windows(job, roles) for job in jobs]
        groups, alone = list[_Group](), tuple(range(len(jobs)))
        if jobs[0][0].device.alignment and not _overlap(jobs, roles, windows):
            groups, alone = _group_jobs(jobs, windows)
        for number in alone:
            group, job = _Group(), jobs[number]
            starts = [tensor.storage.span.offset for tensor in job]
            group.jobs = [number]
            group.windows = [(start, end) for start, (_, end) in zip(starts, windows[number], strict=True)]
            groups.append(group)
        groups.sort(key=lambda group: group.jobs[0])
        return self._write_table(groups, jobs, roles, windows, slot, group_elements)

    def _write_table(
        self,
        groups: Sequence[_Group],
        jobs: Sequence[Job],
        roles: Sequence[Role],
        windows: Sequence[Sequence[Window]],
        slot: Hashable,
        group_elements: int = 0,
    ) -> tuple[TensorBatch, ...]:
        """The groups' dispatches, whose table is on the device."""
        device = jobs[0][0].device
        # The table is kept: if tables came and went, small tensors would move and no plan would fit again.
        nbytes = 4 * ROW_WORDS * len(jobs)
        table = self._tables.get((device, slot))
        if table is None or table.nbytes < nbytes:
            table = self._tables[device, slot] = device.allocate(nbytes, "table")
        rows = np.zeros((sum(len(group.jobs) for group in groups), ROW_WORDS), np.uint32)
        batches, start = list[TensorBatch](), 0
        for group in groups:
            batches.append(_make_batch(group, jobs, roles, windows, table, rows, start, group_elements))
            start += len(group.jobs)
        device.write(table, rows)
        return tuple(batches)


class RecentPlans:
    """The plans of a device for the lists of tensors that were used last, as many as optimizers have."""

    def __init__(self) -> None:
        self._plans = MultiTensor()
        self._slots: OrderedDict[Hashable, int] = OrderedDict()

    def plan(
        self, name: Hashable, jobs: Sequence[Job], roles: Sequence[Role], *, every: bool = False
    ) -> MultiTensorPlan:
        """As :meth:`MultiTensor.plan`, in a slot for this name and the place of the first tensor."""
        span = jobs[0][0].storage.span
        key = (name, id(span.buffer), span.offset, len(jobs))
        if key in self._slots:
            self._slots.move_to_end(key)
        elif len(self._slots) < MAX_SLOTS:
            self._slots[key] = len(self._slots)
        else:
            self._slots[key] = self._slots.popitem(last=False)[1]
        return self._plans.plan(jobs, roles, self._slots[key], every=every)


def recent_plans(device: Device) -> RecentPlans:
    """The recent plans of a device."""
    plans: RecentPlans = device.tables.setdefault("recent plans", RecentPlans())
    return plans


def side_by_side(device: Device, sizes: Sequence[int]) -> list[Storage]:
    """Allocate adjacent memory of these sizes in bytes, in as few buffers as possible.

    Each piece of a buffer is freed with the last storage in it.

    Raises:
        OutOfMemoryError
    """
    if not device.alignment:
        return [device.allocate(nbytes) for nbytes in sizes]
    limits = device.info.limits
    max_bytes = min(limits.storage_buffer_range, limits.allocation_size)
    parts, free_bytes = list[list[int]](), 0
    for nbytes in sizes:
        size = aligned(nbytes, device.alignment)
        if not parts or size > free_bytes:
            parts.append([])
            free_bytes = max_bytes
        parts[-1].append(nbytes)
        free_bytes -= size
    return [storage for part in parts for storage in _split_allocation(device, part)]


def _split_allocation(device: Device, sizes: Sequence[int]) -> list[Storage]:
    """Storages that lie behind each other in one allocation."""
    offsets = [0, *itertools.accumulate(aligned(nbytes, device.alignment) for nbytes in sizes)]
    whole = device.allocate(offsets[-2] + sizes[-1])
    buffer, start, _ = whole.span
    return [
        Storage(Span(buffer, start + offset, aligned(nbytes, 4)), nbytes, whole.allocation, whole)
        for offset, nbytes in zip(offsets, sizes, strict=False)
    ]


class _Group:
    """Jobs of one dispatch: for each role a window covers all of their tensors."""

    def __init__(self) -> None:
        self.jobs: list[int] = []
        self.windows: list[Window] = []

    def try_add(self, number: int, windows: list[Window], limit: int) -> bool:
        """Add a job, unless the group or one of its windows becomes too large."""
        if self.jobs:
            pairs = zip(self.windows, windows, strict=True)
            windows = [(min(a, start), max(b, end)) for (a, b), (start, end) in pairs]
        if len(self.jobs) == MAX_ROWS or any(end - start > limit for start, end in windows):
            return False
        self.jobs.append(number)
        self.windows = windows
        return True


def _group_jobs(
    jobs: Sequence[Job], job_windows: Sequence[Sequence[Window]]
) -> tuple[list[_Group], tuple[int, ...]]:
    """Groups of at least two jobs, and the numbers of the jobs that are left alone."""
    device = jobs[0][0].device
    limit, mask = device.info.limits.storage_buffer_range, -device.alignment
    by_buffers: dict[tuple[Any, ...], list[_Group]] = {}
    alone: list[int] = []
    for number, job in enumerate(jobs):
        windows = [(start & mask, end) for start, end in job_windows[number]]
        fits = all(end - start <= limit for start, end in windows)
        if not fits or not all(device.memory.joins(tensor.storage) for tensor in job):
            alone.append(number)
            continue
        groups = by_buffers.setdefault(tuple(tensor.storage.buffer for tensor in job), [])
        if not any(group.try_add(number, windows, limit) for group in groups):
            groups.append(_Group())
            groups[-1].try_add(number, windows, limit)
    all_groups = [group for groups in by_buffers.values() for group in groups]
    alone += [group.jobs[0] for group in all_groups if len(group.jobs) == 1]
    return [group for group in all_groups if len(group.jobs) > 1], tuple(sorted(alone))


def _windows(job: Job, roles: Sequence[Role]) -> list[Window]:
    """The ranges that the tensors of a job occupy in their buffers."""
    elements = job[-1].numel()
    starts = [tensor.storage.span.offset + 4 * tensor.offset for tensor in job]
    return [(start, start + 4 * role.values(elements)) for start, role in zip(starts, roles, strict=True)]


def _overlap(jobs: Sequence[Job], roles: Sequence[Role], job_windows: Sequence[Sequence[Window]]) -> bool:
    """Whether memory is written that another job or role reads or writes too."""
    ordered = sorted(
        (id(tensor.storage.buffer), *window, role.written)
        for job, windows in zip(jobs, job_windows, strict=True)
        for tensor, window, role in zip(job, windows, roles, strict=True)
    )
    buffer, end, end_written = 0, 0, 0
    for buffer_id, start, stop, written in ordered:
        if buffer_id != buffer:
            buffer, end, end_written = buffer_id, 0, 0
        if start < (end if written else end_written):
            return True
        end = max(end, stop)
        if written:
            end_written = max(end_written, stop)
    return False


def _make_batch(
    group: _Group,
    jobs: Sequence[Job],
    roles: Sequence[Role],
    job_windows: Sequence[Sequence[Window]],
    table: Storage,
    rows: npt.NDArray[np.uint32],
    start: int,
    group_elements: int,
) -> TensorBatch:
    """A dispatch; writes its rows of the table from `start` on."""
    sizes = [jobs[number][-1].numel() for number in group.jobs]
    per_group = group_elements or ELEMENTS_PER_GROUP
    while sum(ceil_div(n, per_group) for n in sizes) > MAX_GRID_SIZE:
        per_group *= 2
    workgroups = 0
    for row, (number, n) in enumerate(zip(group.jobs, sizes, strict=True), start):
        pairs = zip(job_windows[number], group.windows, strict=True)
        offsets = [(first - low) // 4 for (first, _), (low, _) in pairs]
        rows[row, : 2 + len(offsets)] = (workgroups, n, *offsets)
        workgroups += ceil_div(n, per_group)
    spans = tuple(
        Storage(
            Span(tensor.storage.buffer, low, high - low), min(4 * sum(map(role.values, sizes)), high - low)
        )
        for tensor, role, (low, high) in zip(jobs[group.jobs[0]], roles, group.windows, strict=True)
    )
    return TensorBatch(tuple(group.jobs), table, (start, start + len(sizes), per_group), spans, workgroups)
