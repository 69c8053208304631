"""What a device's memory is used for, how much of it there may be, and pictures of it over time.

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

from dl4all.allocator.allocation import Piece
from dl4all.allocator.allocator import Allocator, amount, table
from dl4all.allocator.history import Timeline
from dl4all.errors import ArgumentError, DeviceError
from dl4all.nn.module import Module
from dl4all.ops.core.tensor_base import TensorBase
from dl4all.runtime.cpu import heap
from dl4all.scheduler.current import device as _open
from dl4all.scheduler.current import opened
from dl4all.scheduler.device import Device

UNITS = {"": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}
Place = str | Device


@dataclass(frozen=True)
class MemoryStats:
    """The memory of one device. Sizes are in bytes; peaks count from the last :func:`reset_peak`."""

    allocated: int  # asked for by tensors that are alive
    reserved: int  # taken from the driver, in use or not
    peak: int  # the most that was ever allocated
    peak_reserved: int
    hits: int  # requests served from memory that was there
    misses: int  # requests for which the driver was asked
    fragmentation: float  # the part of `peak_reserved` that `peak` could not use, 0 to 1
    limit: int | None
    by_tag: dict[str, int]  # allocated, by what made it: ops' names, "upload"


def stats(device: Place = "auto") -> MemoryStats:
    """Numbers of this moment.

    Example:
        >>> import dl4all as dl
        >>> x = dl.zeros(256, device="cpu")
        >>> dl.memory.stats("cpu").allocated >= 1024
        True
    """
    pool = _pool(device)
    found, live = pool.stats, pool.live()
    by_tag: Counter[str] = Counter()
    for piece in live:
        by_tag[piece.tag or "-"] += piece.nbytes
    return MemoryStats(
        found.allocated, found.reserved, found.peak, found.peak_reserved, found.hits, found.misses,
        found.fragmentation, pool.driver.limit, dict(by_tag.most_common()),
    )  # fmt: skip


def summary(device: Place | None = None, rows: int = 10) -> str:
    """A text about one device, or all that were opened: how much is in use, and who holds the most."""
    pools = [place.pool for place in opened()] if device is None else [_pool(device)]
    return "\n".join(line for pool in pools for line in _about(pool, rows))


def _about(pool: Allocator, rows: int) -> Iterator[str]:
    found, live = pool.stats, pool.live()
    limit = "" if pool.driver.limit is None else f", limit {amount(pool.driver.limit)}"
    yield (
        f"{pool.name}: {amount(found.allocated)} in {len(live)} tensors (peak {amount(found.peak)}), "
        f"{amount(found.reserved)} reserved (peak {amount(found.peak_reserved)}){limit}, "
        f"{found.hits} requests served from it, {found.misses} by the driver"
    )
    yield from table(live[:rows], pool.describe(live[:rows]))
    if len(live) > rows:
        yield f"  {amount(sum(piece.nbytes for piece in live[rows:])):>10}  in {len(live) - rows} others"


def limit(device: Place, most: int | str | None) -> None:
    """Reserve no more than so much of a device's memory; None for as much as there is.

    Args:
        device: whose.
        most: bytes, or text such as ``"512MB"`` or ``"1.5 GiB"``.

    Raises:
        ArgumentError: that is no amount of memory.

    What is reserved already and not in use goes back; tensors stay, even if they are more.
    """
    pool = _pool(device)
    pool.driver.limit = None if most is None else parsed(most)
    if pool.driver.limit is not None and pool.driver.reserved > pool.driver.limit:
        pool.trim()


def parsed(text: int | str) -> int:
    """Bytes, from a number or a text.

    >>> parsed("512MB"), parsed("1.5 GiB"), parsed(4096)
    (512000000, 1610612736, 4096)
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMG]I?B|B?)\s*", str(text), re.IGNORECASE)
    if match is None or isinstance(text, bool):
        raise ArgumentError(f'[limit] expected an amount of memory such as "512MB" or 2**29, got {text!r}')
    unit = match[2].upper()
    return int(float(match[1]) * UNITS["" if unit == "B" else unit])


def reset_peak(device: Place = "auto") -> None:
    """Let the peaks of :func:`stats` begin anew."""
    _pool(device).reset_peak()


def trim(device: Place = "auto") -> int:
    """Give memory that nothing uses back to the driver; returns how many bytes that were.

    That of the ``cpu`` goes back to the system, as far as the C library can.
    """
    place = _open(device)
    freed = place.pool.trim()
    return freed + heap.give_back() if place.is_host else freed


def track(enabled: bool = True, device: Place = "auto") -> None:
    """Note for each tensor which line of the program made it, for summaries and errors; costs a little."""
    _pool(device).track(enabled)


@contextlib.contextmanager
def trace(device: Place = "auto") -> Iterator[Timeline]:
    """What is allocated and freed meanwhile.

    Returns:
        A context with a :class:`Timeline`, to be saved as a picture: ``.save("memory.html")`` or ``.png``.

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
    """What a piece of a program needed. Bytes; complete when the ``with`` block has ended."""

    lower_bound: int = 0  # the most that tensors held at one time: what no allocator can do without
    peak_reserved: int = 0  # what was taken from the driver
    allocations: int = 0
    driver_allocations: int = 0  # of them that the driver was asked for
    by_tag: dict[str, int] = field(default_factory=dict)  # who held the lower bound at that time

    @property
    def ratio(self) -> float:
        """How many times the lower bound is reserved; 1 would be perfect."""
        return self.peak_reserved / self.lower_bound if self.lower_bound else 1.0


@contextlib.contextmanager
def measure(device: Place = "auto") -> Iterator[Measured]:
    """Compare what a block of code reserves with the least that its tensors allow.

    What waits unused is given back first, so that only what the block needs counts. The lower bound is the
    largest sum of the bytes of tensors alive at one time, not rounded.

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
    before, found = pool.stats, Measured()
    with trace(device) as timeline:
        try:
            yield found
        finally:
            after = pool.stats
            found.lower_bound, found.peak_reserved = after.peak, after.peak_reserved
            found.allocations = after.hits + after.misses - before.hits - before.misses
            found.driver_allocations = after.misses - before.misses
            found.by_tag = timeline.at_peak()


def host_view(tensor: TensorBase) -> npt.NDArray[Any]:
    """The memory of a tensor itself as a NumPy array, without a copy.

    That is possible on the CPU, and on integrated and software devices, which share the host's memory. The
    array and the tensor see each other's changes: wait with ``dl.synchronize`` before reading what was
    computed since, and before changing what commands still read. ``tensor.numpy()`` is a copy on every
    device but the CPU, and needs no such care.

    Raises:
        DeviceError: the host does not see the memory of this device.

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


def pin(array: npt.NDArray[Any], device: Place = "auto") -> npt.NDArray[Any]:
    """A copy of an array in memory that a device reads by itself, for faster uploads.

    An upload of a pinned array (all of it, or a contiguous part) needs no copy by the host, and runs beside
    what the device computes. Worth it for arrays that are filled and uploaded again and again. Where a
    device shares the host's memory, and on the CPU, it is an array like any other.

    Raises:
        OutOfMemoryError: there is no more of that memory.

    Example:
        >>> import dl4all as dl, numpy as np
        >>> batch = dl.pin(np.ones((2, 3), np.float32), "cpu")
        >>> dl.tensor(batch, device="cpu").shape
        (2, 3)
    """
    place = _open(device)
    return np.array(array) if place.is_host else place.pin(np.asarray(array))


def _pool(place: Place) -> Allocator:
    return _open(place).pool


def _described(pieces: Iterable[Piece]) -> dict[Piece, str]:
    """Names and shapes of the tensors on pieces, for which all of Python's objects are looked through.

    Strange ones too, in the middle of an error: nothing of theirs may run. ``isinstance`` would ask for
    ``__class__``, and a module may be half made.
    """
    wanted = set(pieces)
    tensors: list[TensorBase] = []
    held: dict[int, tuple[str, int]] = {}  # attributes of modules, by id: the name, and the module's id
    for thing in gc.get_objects():
        kind = type(thing)
        if issubclass(kind, TensorBase):
            tensors.append(thing)
        elif issubclass(kind, Module):
            for name, value in tuple(vars(thing).items()):
                if issubclass(type(value), (TensorBase, Module)):
                    held.setdefault(id(value), (name, id(thing)))
    found: dict[Piece, str] = {}
    for tensor in tensors:
        piece = getattr(getattr(tensor, "storage", None), "piece", None)
        if piece in wanted and (piece not in found or id(tensor) in held):
            found[piece] = f"{_path(id(tensor), held)} {tensor.shape} {tensor.dtype}".strip()
    return found


def _path(number: int, held: dict[int, tuple[str, int]]) -> str:
    """The name of a tensor from the outermost module, such as ``layer1.0.weight``; empty without one."""
    names: dict[int, str] = {}  # by id: modules may hold each other
    while number in held and number not in names:
        names[number], number = held[number]
    return ".".join(reversed(names.values()))


Allocator.describe = staticmethod(_described)
