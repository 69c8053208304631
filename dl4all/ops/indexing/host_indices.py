"""Indices on the CPU: checked, thinned and counted; in calls that are captured, again when a graph runs."""

from __future__ import annotations

import functools
import threading
from typing import Any

import numpy as np
import numpy.typing as npt

from dl4all.ops.core.kernels.host_kernel import REFUSED, ArrayLayout, HostLaunch, layout_of
from dl4all.ops.core.kernels.host_work import WorkKernel, host_work
from dl4all.ops.core.op import empty
from dl4all.ops.core.tensor_base import Shape, TensorBase, host_array
from dl4all.scheduler import listeners
from dl4all.scheduler.index_errors import MakeError

INT32, INT64, FLOAT32 = np.dtype("int32"), np.dtype("int64"), np.dtype("float32")
_own = threading.local()  # what a kernel tells this thread about indices


def checked(
    index: TensorBase,
    size: int,
    error: MakeError | None,
    negative: bool,
    ignored: int | None,
    scale: int,
    grid: Shape | None,
    onto: TensorBase | None,
) -> TensorBase:
    """As :func:`dl4all.ops.indexing.device_indices.checked`, on the CPU; errors come at once."""
    cls, device = type(index).result_class, index.device
    out: TensorBase = empty(cls, index.shape, INT32, device, "index") if onto is None else onto
    if not listeners.captured() and device.keeps_plans:
        wrong = _first_wrong(index, out, (size, negative, ignored, scale, grid, onto is not None))
        if wrong is not None:
            if wrong >= 0 and error is not None:
                raise error(int(host_array(index).reshape(-1)[wrong]))
            return out
    places = functools.partial(_places, size, error, negative, ignored, scale, grid)
    if onto is None:
        host_work("check_indices", lambda given, out: np.copyto(out, places(given)), [index], [out])
    else:
        host_work("check_indices", lambda given, out: np.add(out, places(given), out=out), [index], [out])
    return out


def _first_wrong(index: TensorBase, out: TensorBase, constants: tuple[Any, ...]) -> int | None:
    """Write places by a kernel: the number of the first index out of range, or -1; None without a kernel."""
    plans = index.device.plans
    key = ("check_indices", constants, index.shape, index.strides, index.dtype.num)
    launch = plans.get(key)
    if launch is None:
        launch = check_launch(layout_of(index), layout_of(out), constants) or REFUSED
        plans.keep(key, launch)
    return None if launch is REFUSED else run_check(launch, index, out)


def check_launch(index: ArrayLayout, places: ArrayLayout, constants: tuple[Any, ...]) -> HostLaunch | None:
    """The kernel that writes the places of indices; None without one.

    Args:
        index, places: their layouts.
        constants: those of :func:`dl4all.host_kernels.indexing.index_checks.prepare_check`.
    """
    return WorkKernel("check_indices", constants).launch([index], [places, ArrayLayout((1,), INT64)])


def run_check(launch: HostLaunch, index: TensorBase, places: TensorBase) -> int:
    """Write the places of indices; returns the number of the first one out of range, or -1."""
    for storage in (index.storage, places.storage):
        if storage.pending is not None:
            storage.settle()
    status = getattr(_own, "status", None)
    if status is None:
        status = _own.status = np.zeros(1, np.int64)
        _own.address = status.ctypes.data
    addresses = [
        index.storage.address + index.offset * index.dtype.itemsize,
        places.storage.address + 4 * places.offset, _own.address,
    ]  # fmt: skip
    counters = index.device.counters
    counters.host_kernels += 1  # no process is forked meanwhile
    try:
        launch.run(addresses)
    finally:
        counters.host_finished += 1
    return int(status[0])


def _places(
    size: int,
    error: MakeError | None,
    negative: bool,
    ignored: int | None,
    scale: int,
    grid: Shape | None,
    given: npt.NDArray[Any],
) -> npt.NDArray[np.int32]:
    """The places that indices select, -1 for those that select nothing."""
    index = given.astype(np.int64)
    wrong = (index < (-size if negative else 0)) | (index >= size)
    left_out = np.zeros(index.shape, np.bool_) if ignored is None else index == ignored
    if error is not None and (wrong & ~left_out).any():
        raise error(int(index[wrong & ~left_out][0]))
    places = np.where(index < 0, index + size, index) * scale
    for axis, step in enumerate(grid or ()):
        line = (-1,) + (1,) * (index.ndim - axis - 1)
        places += step * np.arange(index.shape[axis]).reshape(line)
    return np.where(wrong | left_out, -1, places).astype(np.int32)


def last_occurrences(index: TensorBase) -> TensorBase:
    """Indices with all but the last occurrence of each value replaced by -1."""
    kept: TensorBase = empty(type(index).result_class, index.shape, INT32, index.device, "index")
    host_work("last_occurrences", _keep_last, [index], [kept])
    return kept


def _keep_last(index: npt.NDArray[Any], kept: npt.NDArray[Any]) -> None:
    backwards = index.reshape(-1)[::-1]
    unique = np.full(len(backwards), -1, np.int32)
    _, first = np.unique(backwards, return_index=True)
    unique[first] = backwards[first]
    kept[...] = unique[::-1].reshape(kept.shape)


def count_selected(index: TensorBase) -> TensorBase:
    """The number of indices that are not negative: a float32 of shape ()."""
    total: TensorBase = empty(type(index).result_class, (), FLOAT32, index.device, "index")
    host_work("count_selected", lambda index, out: out.fill(np.count_nonzero(index >= 0)), [index], [total])
    return total
