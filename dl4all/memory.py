"""Device memory: statistics, limits, tracing over time, and host views.

>>> import dl4all as dl
>>> x = dl.ones(1000, device="cpu")
>>> dl.memory.stats("cpu").allocated >= x.numel() * 4
True
"""

from __future__ import annotations

import contextlib
import gc
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from dl4all.allocator.allocation import Allocation
from dl4all.allocator.allocator import Allocator, amount, table
from dl4all.allocator.history import Timeline
from dl4all.errors import ArgumentError, DeviceError
from dl4all.nn.module import Module
from dl4all.ops.core.tensor_base import TensorBase
from dl4all.runtime.cpu import heap
from dl4all.scheduler.device.current import device as open_device
from dl4all.scheduler.device.current import opened
from dl4all.tensor.arguments import DeviceLike

UNITS = {"": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}


@dataclass(frozen=True)
class MemoryStats:
    """The memory of one device. Sizes are in bytes; peaks count from the last :func:`reset_peak`.

    Example:
        >>> import dl4all as dl
        >>> stats = dl.memory.stats("cpu")
        >>> stats.peak >= stats.allocated
        True
    """

    allocated: int  # requested by tensors that are alive
    reserved: int  # taken from the driver, in use or not
    peak: int  # the maximum of `allocated`
    peak_reserved: int  # the maximum of `reserved`
    hits: int  # requests served from reserved memory
    misses: int  # requests that needed the driver
    fragmentation: float  # the part of `peak_reserved` that `peak` could not use, 0 to 1
    limit: int | None  # the most that may be reserved
    by_tag: dict[str, int]  # allocated bytes by the name of the op that made the tensor, or "upload"


def stats(device: DeviceLike = "auto") -> MemoryStats:
    """The present statistics of a device's memory.

    Example:
        >>> import dl4all as dl
        >>> x = dl.zeros(256, device="cpu")
        >>> dl.memory.stats("cpu").allocated >= 1024
        True
    """
    pool = _pool(device)
    counts, live = pool.stats, pool.live()
    by_tag: Counter[str] = Counter()
    for allocation in live:
        by_tag[allocation.tag or "-"] += allocation.nbytes
    return MemoryStats(
        counts.allocated, counts.reserved, counts.peak, counts.peak_reserved, counts.hits, counts.misses,
        counts.fragmentation, pool.driver.limit, dict(by_tag.most_common()),
    )  # fmt: skip


def summary(device: DeviceLike | None = None, rows: int = 10) -> str:
    """A text about one device, or about all open ones: the memory in use, and the largest tensors.

    Example:
        >>> import dl4all as dl
        >>> dl.memory.summary("cpu").startswith("cpu: ")
        True
    """
    pools = [target.pool for target in opened()] if device is None else [_pool(device)]
    return "\n".join(line for pool in pools for line in _summary_lines(pool, rows))


def _summary_lines(pool: Allocator, rows: int) -> Iterator[str]:
    counts, live = pool.stats, pool.live()
    limit = "" if pool.driver.limit is None else f", limit {amount(pool.driver.limit)}"
    yield (
        f"{pool.name}: {amount(counts.allocated)} in {len(live)} tensors (peak {amount(counts.peak)}), "
        f"{amount(counts.reserved)} reserved (peak {amount(counts.peak_reserved)}){limit}, "
        f"{counts.hits} requests served from it, {counts.misses} by the driver"
    )
    yield from table(live[:rows], pool.describe(live[:rows]))
    if len(live) > rows:
        rest = sum(allocation.nbytes for allocation in live[rows:])
        yield f"  {amount(rest):>10}  in {len(live) - rows} others"


def available(device: DeviceLike = "auto") -> int:
    """Bytes that tensors of a device may still take: by its driver, by :func:`limit`, and from the pool.

    Example:
        >>> import dl4all as dl
        >>> dl.memory.available("cpu") > 1000
        True
    """
    pool = _pool(device)
    counts = pool.stats
    return pool.driver.room() + counts.reserved - counts.allocated


def limit(device: DeviceLike, most: int | str | None) -> None:
    """Limit how much of a device's memory may be reserved.

    Unused memory beyond the limit goes back to the driver at once; tensors stay, even beyond the limit.

    Args:
        device: the device.
        most: bytes, or text such as ``"512MB"`` or ``"1.5 GiB"``; None for no limit.

    Raises:
        ArgumentError: `most` is no amount of memory.

    Example:
        >>> import dl4all as dl
        >>> dl.memory.limit("cpu", None)  # none but the machine's
    """
    pool = _pool(device)
    pool.driver.limit = None if most is None else parsed(most)
    if pool.driver.limit is not None and pool.driver.reserved > pool.driver.limit:
        pool.trim()


def parsed(text: int | str) -> int:
    """A number of bytes from a number or a text.

    >>> parsed("512MB"), parsed("1.5 GiB"), parsed(4096)
    (512000000, 1610612736, 4096)
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMG]I?B|B?)\s*", str(text), re.IGNORECASE)
    if match is None or isinstance(text, bool):
        raise ArgumentError(f'[limit] expected an amount of memory such as "512MB" or 2**29, got {text!r}')
    unit = match[2].upper()
    return int(float(match[1]) * UNITS["" if unit == "B" else unit])


def reset_peak(device: DeviceLike = "auto") -> None:
    """Reset the peaks of :func:`stats` to the present values.

    Example:
        >>> import dl4all as dl
        >>> dl.memory.reset_peak("cpu")
        >>> stats = dl.memory.stats("cpu")
        >>> stats.peak == stats.allocated
        True
    """
    _pool(device).reset_peak()


def trim(device: DeviceLike = "auto") -> int:
    """Give unused memory back to the driver; returns how many bytes.

    Memory of the ``cpu`` goes back to the system, as far as the C library allows.

    Example:
        >>> import dl4all as dl
        >>> dl.memory.trim("cpu") >= 0
        True
    """
    target = open_device(device)
    freed = target.pool.trim()
    return freed + heap.give_back() if target.is_host else freed


def track(enabled: bool = True, device: DeviceLike = "auto") -> None:
    """Record which line of the program made each tensor, for summaries and errors, at a small cost.

    Example:
        >>> import dl4all as dl
        >>> dl.memory.track(device="cpu")
        >>> x = dl.ones(1000, device="cpu")  # the summary says where it was made
        >>> dl.memory.track(False, device="cpu")
    """
    _pool(device).track(enabled)


@contextlib.contextmanager
def trace(device: DeviceLike = "auto") -> Iterator[Timeline]:
    """Record what is allocated and freed within a ``with`` block.

    Returns:
        A context with a :class:`Timeline`, which can be saved: ``.save("memory.html")`` or ``.png``.

    Example:
        >>> import dl4all as dl
        >>> with dl.memory.trace("cpu") as timeline:
        ...     x = dl.ones(1000, device="cpu") + 1
        >>> timeline.peak >= 4000
        True
    """
    pool = _pool(device)
    timeline = Timeline(pool.name, pool.live(), pool.driver)
    stop = pool.watch(timeline.note)
    try:
        yield timeline
    finally:
        stop()


@dataclass
class Measured:
    """The memory that a ``with`` block needed, in bytes; complete when the block has ended.

    Example:
        >>> import dl4all as dl
        >>> with dl.memory.measure("cpu") as measured:
        ...     x = dl.ones(1000, device="cpu")
        >>> measured.lower_bound >= 4000
        True
    """

    lower_bound: int = 0  # the most that tensors held at one time, which every allocator needs
    peak_reserved: int = 0  # the most that was taken from the driver
    allocations: int = 0
    driver_allocations: int = 0  # allocations that needed the driver
    by_tag: dict[str, int] = field(default_factory=dict)  # the bytes of the lower bound by tag

    @property
    def ratio(self) -> float:
        """`peak_reserved` divided by the lower bound; 1 would be perfect."""
        return self.peak_reserved / self.lower_bound if self.lower_bound else 1.0


@contextlib.contextmanager
def measure(device: DeviceLike = "auto") -> Iterator[Measured]:
    """Compare what a block of code reserves with the lower bound that its tensors set.

    Unused memory is given back first, so that only the needs of the block count. The lower bound is the
    largest sum of the bytes of tensors alive at one time, without rounding.

    Example:
        >>> import dl4all as dl
        >>> with dl.memory.measure("cpu") as measured:
        ...     x = dl.ones(1000, device="cpu")
        >>> measured.lower_bound >= 4000
        True
    """
    pool = _pool(device)
    pool.trim()
    pool.reset_peak()
    before, measured = pool.stats, Measured()
    with trace(device) as timeline:
        try:
            yield measured
        finally:
            after = pool.stats
            measured.lower_bound, measured.peak_reserved = after.peak, after.peak_reserved
            measured.allocations = after.hits + after.misses - before.hits - before.misses
            measured.driver_allocations = after.misses - before.misses
            measured.by_tag = timeline.at_peak()


def host_view(tensor: TensorBase) -> npt.NDArray[Any]:
    """A tensor's own memory as a NumPy array, without a copy.

    This is possible on the CPU, and on integrated and software devices, which share the host's memory. A
    change of the array changes the tensor, and the reverse: wait with ``dl.synchronize`` before reading new
    results, and before changing what commands still read. ``tensor.numpy()`` is a copy on every device but
    the CPU, and needs no such care.

    Raises:
        DeviceError: the host cannot see the memory of this device.

    Example:
        >>> import dl4all as dl
        >>> x = dl.zeros(3, device="cpu")
        >>> dl.memory.host_view(x)[1] = 5
        >>> x.tolist()
        [0.0, 5.0, 0.0]
    """
    if tensor.device.is_host or 0 in tensor.shape:
        return tensor.on_host()
    data = tensor.device.host_view(tensor.storage)
    if data is None:
        raise DeviceError(f"[host_view] the host does not see the memory of {tensor.device}; use .numpy()")
    itemsize = tensor.dtype.itemsize
    strides = tuple(stride * itemsize for stride in tensor.strides)
    return np.ndarray(tensor.shape, tensor.dtype, data, tensor.offset * itemsize, strides)


def pin(array: npt.NDArray[Any], device: DeviceLike = "auto") -> npt.NDArray[Any]:
    """A copy of an array in pinned memory, which a device reads directly, for faster uploads.

    An upload of a pinned array (all of it, or a contiguous part) needs no copy by the host, and overlaps with
    the device's computations. This pays for arrays that are filled and uploaded repeatedly. On the CPU, and
    if a device shares the host's memory, the result is an ordinary array.

    Raises:
        OutOfMemoryError: the pinned memory is exhausted.

    Example:
        >>> import dl4all as dl, numpy as np
        >>> batch = dl.pin(np.ones((2, 3), np.float32), "cpu")
        >>> dl.tensor(batch, device="cpu").shape
        (2, 3)
    """
    target = open_device(device)
    return np.array(array) if target.is_host else target.copies.pin(np.asarray(array))


def _pool(device: DeviceLike) -> Allocator:
    return open_device(device).pool


def _describe(allocations: Iterable[Allocation]) -> dict[Allocation, str]:
    """Names and shapes of the tensors in allocations of memory, found among all of Python's objects.

    This runs while an error is raised and meets objects of all kinds, so it must not run their code:
    ``isinstance`` would read ``__class__``, and a module may be incomplete.
    """
    allocations = set(allocations)
    tensors: list[TensorBase] = []
    owners: dict[int, tuple[str, int]] = {}  # attributes of modules, by id: the name, and the module's id
    for instance in gc.get_objects():
        cls = type(instance)
        if issubclass(cls, TensorBase):
            tensors.append(instance)
        elif issubclass(cls, Module):
            for name, value in tuple(vars(instance).items()):
                if issubclass(type(value), (TensorBase, Module)):
                    owners.setdefault(id(value), (name, id(instance)))
    descriptions: dict[Allocation, str] = {}
    for tensor in tensors:
        allocation = getattr(getattr(tensor, "storage", None), "allocation", None)
        if allocation in allocations and (allocation not in descriptions or id(tensor) in owners):
            descriptions[allocation] = f"{_path(id(tensor), owners)} {tensor.shape} {tensor.dtype}".strip()
    return descriptions


def _path(address: int, owners: dict[int, tuple[str, int]]) -> str:
    """The dotted name of a tensor from the outermost module; empty if no module holds it."""
    names: dict[int, str] = {}  # by id, because modules may hold each other in a circle
    while address in owners and address not in names:
        names[address], address = owners[address]
    return ".".join(reversed(names.values()))


Allocator.describe = staticmethod(_describe)
