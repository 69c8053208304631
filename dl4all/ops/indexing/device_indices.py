"""Indices that stay on their device: checked, sorted and counted by kernels, without a wait.

On the CPU errors come at once, but in calls that are captured: a graph looks each time.
"""

from __future__ import annotations

import math
from typing import Any, TypeGuard

import numpy as np

from dl4all.ops.core.kernels.kernel_function import kernel_function
from dl4all.ops.core.kernels.launch import check_rounds, run, shader, strided_grid
from dl4all.ops.core.kernels.push_block import PushBlock
from dl4all.ops.core.op import KERNEL_REFUSALS, SHARED, empty
from dl4all.ops.core.strides import merge_axes
from dl4all.ops.core.tensor_base import Shape, TensorBase
from dl4all.ops.core.vmap_hook import BatchedTensorBase
from dl4all.ops.indexing import host_indices
from dl4all.runtime.cpu.llvm import provider
from dl4all.scheduler import listeners
from dl4all.scheduler.check_mode import checks_at_once
from dl4all.scheduler.device.programs import Launch
from dl4all.scheduler.index_errors import SLOTS, MakeError

WORKGROUP = 128
AXES = 5  # of an index that the kernel takes, when neighbouring ones are merged
MOST = 2**30  # indices, and elements that they select from: kernels count in ints
INT32, FLOAT32 = np.dtype("int32"), np.dtype("float32")

INDEX_DTYPES = frozenset(map(np.dtype, ("int64", "int32", "int16", "int8", "uint8")))
INTEGERS = (("int64", 8, 1), ("int32", 4, 1), ("int16", 2, 1), ("int8", 1, 1), ("uint8", 1, 0))
CHECK_PUSH = PushBlock(
    "indexing/check_indices.comp",
    "uint n, launch, x_offset, scale; int size, lowest; uint has_ignored; int ignored, ignored_high; "
    f"uint axes, sizes[{AXES}], x_strides[{AXES}], y_strides[{AXES}];",
)
GROUP_PLAN_PUSH = PushBlock("indexing/group_plan.comp", "uint n, size;")
LAST_OCCURRENCE_PUSH = PushBlock("indexing/last_occurrence.comp", "uint n;")
COUNT_SELECTED_PUSH = PushBlock("indexing/count_selected.comp", "uint n;")
MERGE_RUNS_PUSH = PushBlock("indexing/merge_runs.comp", "uint n, run, runs;")
CHECK = {
    (dtype, add): shader("indexing/check_indices.comp", BYTES=size, SIGNED=signed, ADD=int(add))
    for dtype, size, signed in INTEGERS
    for add in (False, True)
}
"""By the dtype of an index, and whether it is added to one of another axis."""

MERGE_FIRST, MERGE = (shader("indexing/merge_runs.comp", FIRST=first) for first in (1, 0))
FIRST_RUNS, RUNS = 64, 16  # that one step merges
GROUP_PLAN = shader("indexing/group_plan.comp")
MARK_LAST, KEEP_LAST = (shader("indexing/last_occurrence.comp", MARK=mark) for mark in (1, 0))
COUNT = shader("indexing/count_selected.comp")

SHARED.extend((*CHECK.values(), MERGE_FIRST, MERGE, GROUP_PLAN, MARK_LAST, KEEP_LAST, COUNT))


def stays(index: Any, like: TensorBase) -> TypeGuard[TensorBase]:
    """Whether an index is checked by a kernel: ints on the device of what it selects from.

    Raises:
        ConfigError: the setting of ``dl.debug`` is unusable.
    """
    return (
        isinstance(index, TensorBase)
        and not isinstance(index, BatchedTensorBase)
        and index.device is like.device
        and index.dtype in INDEX_DTYPES
        and _defers(index)
    )


def _defers(tensor: TensorBase) -> bool:
    """Whether a kernel may look at a tensor, and an error come later."""
    if tensor.device.is_host:
        return (listeners.captured() or provider.available()) and 0 < tensor.numel() < MOST
    nbytes = 4 * tensor.numel()
    return (
        0 < tensor.numel() < MOST
        and nbytes <= tensor.device.info.limits.storage_buffer_range
        and not checks_at_once()
    )


def refuse(wrong: TensorBase, error: MakeError) -> bool:
    """Have an error raised at the next wait if an element of a tensor of bools is true.

    Returns:
        Whether a kernel looks for it; otherwise the host is to.
    """
    if isinstance(wrong, BatchedTensorBase) or not _defers(wrong):
        return False
    cls = type(wrong).result_class
    numbers = cls(wrong.storage, wrong.shape, np.dtype("uint8"), wrong.device, wrong.strides, wrong.offset)
    return checked(numbers, 1, error) is not None


def checked(
    index: TensorBase,
    size: int,
    error: MakeError | None,
    *,
    negative: bool = False,
    ignored: int | None = None,
    scale: int = 1,
    grid: Shape | None = None,
    onto: TensorBase | None = None,
) -> TensorBase | None:
    """Contiguous int32 indices from 0 to ``size - 1``, times a scale; -1 where one selects nothing.

    Args:
        index: ints of any strides, see :func:`stays`.
        size: of the axis.
        error: makes what is raised, at the next wait, from the first index that is out of range; None where
            nothing is.
        negative: whether indices from ``-size`` on are allowed and count from the end.
        ignored: selects nothing, and is not out of range.
        scale: the stride of the axis in what the results select from.
        grid: strides that are added for each axis of the index.
        onto: a result of the same shape, to which these are added; it is changed.

    Returns:
        None where no kernel takes them.
    """
    if size > MOST:
        return None
    if index.device.is_host:
        return host_indices.checked(index, size, error, negative, ignored, scale, grid, onto)
    base = (0,) * len(index.shape) if grid is None else grid
    sizes, (x_strides, y_strides) = merge_axes(index.shape, [index.strides, base])
    if len(sizes) > AXES or min(x_strides, default=0) < 0:
        return None
    missing = (0,) * (AXES - len(sizes))
    if ignored is not None and not -(2**63) <= ignored < 2**63:
        ignored = None  # no index is so large
    low, high = np.array([ignored or 0], np.int64).view(np.int32).tolist()
    n = index.numel()
    out = empty(type(index).result_class, index.shape, INT32, index.device, "index") if onto is None else onto
    groups = min(-(-n // WORKGROUP), SLOTS)
    device = index.device
    errors = device.index_errors
    number, found = errors.begin(error)
    push = CHECK_PUSH.pack(
        n, number, index.offset, scale, size, -size if negative else 0, int(ignored is not None), low, high,
        max(len(sizes), 1), *missing, *sizes, *missing, *x_strides, *missing, *y_strides,
    )  # fmt: skip
    code = CHECK[index.dtype.name, onto is not None]
    try:
        check_rounds(device, -(-n // (groups * WORKGROUP)))
        device.launch(Launch(code, (groups, 1, 1), push), index.storage, found, out.storage)
    except KERNEL_REFUSALS:
        return None
    finally:
        if error is not None:
            errors.launched()
    return out


def without(index: TensorBase, left_out: int) -> TensorBase | None:
    """Checked indices with those of one value replaced by -1; None where no kernel takes them."""
    return checked(index, MOST, None, ignored=left_out)


def sorted_pairs(index: TensorBase) -> TensorBase:
    """The indices, and their positions, sorted by both; negative ones come last. Shape (count, 2)."""
    count = index.numel()
    code, runs, run_size, source = MERGE_FIRST, FIRST_RUNS, 1, index
    while True:
        pairs: TensorBase = empty(type(index).result_class, (count, 2), INT32, index.device, "index")
        run(
            code,
            strided_grid(count, WORKGROUP),
            MERGE_RUNS_PUSH.pack(n=count, run=run_size, runs=runs),
            source,
            pairs,
        )
        run_size *= runs
        if run_size >= count:
            return pairs
        code, runs, source = MERGE, RUNS, pairs


def group_plan(pairs: TensorBase, size: int) -> TensorBase:
    """The plan for the kernel of ``take_rows_backward``: the boundaries of groups, then positions."""
    count = pairs.shape[0]
    words = count + size + 1
    plan: TensorBase = empty(type(pairs).result_class, (words,), INT32, pairs.device, "index")
    run(GROUP_PLAN, strided_grid(words, WORKGROUP), GROUP_PLAN_PUSH.pack(n=count, size=size), pairs, plan)
    return plan


@kernel_function("last_occurrences")
def last_occurrences(index: TensorBase, size: int) -> TensorBase:
    """Indices below `size` with all but the last occurrence of each value replaced by -1."""
    cls, device, count = type(index).result_class, index.device, index.numel()
    if device.is_host:
        return host_indices.last_occurrences(index)
    last: TensorBase = empty(cls, (max(size, 1),), INT32, device, "index")
    device.fill(last.storage, 0)
    kept: TensorBase = empty(cls, (count,), INT32, device, "index")
    grid = strided_grid(count, WORKGROUP)
    run(MARK_LAST, grid, LAST_OCCURRENCE_PUSH.pack(n=count), index, last)
    run(KEEP_LAST, grid, LAST_OCCURRENCE_PUSH.pack(n=count), index, last, kept)
    return kept


def count_selected(index: TensorBase) -> TensorBase:
    """The number of indices that are not negative: a float32 of shape ().

    Raises:
        NoKernel: there are too many.
    """
    count = math.prod(index.shape)
    if index.device.is_host:
        return host_indices.count_selected(index)
    check_rounds(index.device, -(-count // WORKGROUP))
    total: TensorBase = empty(type(index).result_class, (), FLOAT32, index.device, "index")
    run(COUNT, (1, 1, 1), COUNT_SELECTED_PUSH.pack(n=count), index, total)
    return total
