"""Capture: what a device is asked for while a function runs, for the graph compiler.

Devices and ops look once per call at :data:`active`, and tell it what they do. A push constant that is
another one in each call, such as the counter of a random generator, is a marked number: :class:`VaryingInt`
or :class:`VaryingFloat`. It keeps its mark on its way through arguments of ops, up to the push constants
(:class:`PushConstants`), and so a replay knows which words to compute anew.
"""

from __future__ import annotations

import contextlib
import math
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy.typing as npt

from dl4all.allocator.storage import Storage
from dl4all.scheduler.device.programs import Launch

if TYPE_CHECKING:
    from dl4all.scheduler.device.device import Device

MASK = 2**32 - 1
Again = Callable[[], Sequence[int | float]]
"""Takes the host's part of a call again, such as counting a step, and returns the numbers of this time."""


class Capture(Protocol):
    """Callbacks of a capture. Those from threads that are not captured are told, too, and return False."""

    def allocated(self, device: Device, nbytes: int, tag: str) -> Storage | None:
        """A device is to allocate; the result takes the place of memory."""

    def born(self, device: Device, storage: Storage) -> None:
        """A device has allocated."""

    def launched(
        self, device: Device, launch: Launch, writes: Sequence[bool], storages: Sequence[Storage]
    ) -> bool:
        """A launch, checked, that is to run; True keeps it from running."""

    def filled(self, device: Device, storage: Storage, word: int, first: int, count: int) -> bool:
        """Words of a storage are to be filled; True keeps them as they are."""

    def uploaded(self, device: Device, storage: Storage, array: npt.NDArray[Any]) -> None:
        """Contents have come from the host into new memory."""

    def host_call(
        self,
        device: Device,
        name: str,
        work: Callable[..., None],
        marks: Sequence[Mark],
        pieces: Sequence[tuple[Storage, int, int]],
        writes: Sequence[bool],
    ) -> bool:
        """The host is to run ``work(*memory)`` on pieces of storages, offset and size; True prevents it.

        `marks` are those of the varying numbers in the work, `writes` says which pieces it may write.
        """

    def read(self, device: Device) -> None:
        """The host reads elements of a tensor in the memory of the CPU."""

    def refused(self, what: str) -> None:
        """Something happens that a replay could not do; `what` is the end of a sentence on it."""

    def op(self, op: Any, operands: list[Any], arguments: dict[str, Any], compute: Callable[[], Any]) -> Any:
        """An op computes; the result is what `compute` returns."""

    def vary(self, name: str, numbers: Sequence[int | float], again: Again) -> list[Any]:
        """Numbers that are others in the next call: the same, marked."""

    def depends(self, holds: Callable[[], bool]) -> None:
        """Note a condition under which the capture is right."""

    def leaf_gradient(self, leaf: Any) -> None:
        """A leaf is to get a gradient."""

    def index_check(self, number: int) -> int:
        """The number of a launch that notes indices out of range: the same, marked."""


active: Capture | None = None
"""The capture that goes on, of whichever thread."""

lock = threading.RLock()
"""Held by the thread that captures; it may capture again what it makes of that."""


@contextlib.contextmanager
def suspended() -> Iterator[None]:
    """Within the ``with`` block nothing is captured: for measurements, which are no part of a call."""
    global active
    before, active = active, None
    try:
        yield
    finally:
        active = before


class Untracked:
    """Base class of objects whose attributes do not decide what is captured: caches, and counts of calls."""


class Mark(NamedTuple):
    """Which varying number this is: its source, its position there, and which half of it."""

    source: int
    number: int
    half: int = -1


class VaryingInt(int):
    """An int that a replay computes anew. Its halves of 32 bits keep the mark, other arithmetic drops it."""

    mark: Mark

    @classmethod
    def of(cls, value: int, mark: Mark) -> VaryingInt:
        number = cls(value)
        number.mark = mark
        return number

    def __and__(self, other: int) -> int:
        value = int(self) & other
        whole = other == MASK and self.mark.half < 0
        return VaryingInt.of(value, self.mark._replace(half=0)) if whole else value

    def __rshift__(self, other: int) -> int:
        value = int(self) >> other
        whole = other == 32 and self.mark.half < 0
        return VaryingInt.of(value, self.mark._replace(half=1)) if whole else value


class VaryingFloat(float):
    """A float that a replay computes anew; arithmetic drops the mark."""

    mark: Mark

    @classmethod
    def of(cls, value: float, mark: Mark) -> VaryingFloat:
        number = cls(value)
        number.mark = mark
        return number


def varying(value: int | float, mark: Mark) -> VaryingInt | VaryingFloat:
    """A number with a mark."""
    return VaryingFloat.of(value, mark) if isinstance(value, float) else VaryingInt.of(int(value), mark)


class PushConstants(bytes):
    """Push constants of which some words are marked: pairs of an offset in bytes and a mark."""

    marks: tuple[tuple[int, Mark], ...]

    @classmethod
    def of(cls, data: bytes, marks: tuple[tuple[int, Mark], ...]) -> PushConstants:
        made = cls(data)
        made.marks = marks
        return made

    def __add__(self, other: Any) -> PushConstants:
        moved = tuple((offset + len(self), mark) for offset, mark in getattr(other, "marks", ()))
        return PushConstants.of(bytes(self) + bytes(other), self.marks + moved)

    def __radd__(self, other: bytes) -> PushConstants:
        moved = tuple((offset + len(other), mark) for offset, mark in self.marks)
        return PushConstants.of(other + bytes(self), moved)


def marked(values: Sequence[Any], packed: bytes) -> bytes:
    """Push constants of 32-bit words with the marks of the values.

    >>> push = marked([1, VaryingInt.of(7, Mark(0, 0))], bytes(8))
    >>> push.marks
    ((4, Mark(source=0, number=0, half=-1)),)
    """
    marks = tuple(
        (4 * position, value.mark)
        for position, value in enumerate(values)
        if isinstance(value, (VaryingInt, VaryingFloat))
    )
    return PushConstants.of(packed, marks) if marks else packed


def word_of(number: int | float, half: int) -> bytes:
    """A number as a 32-bit push constant: a float32, an integer, or a half of a 64-bit one.

    >>> word_of(2**32 + 5, 1).hex(), word_of(1.0, -1).hex()
    ('01000000', '0000803f')
    """
    if isinstance(number, float):
        try:
            return struct.pack("<f", number)
        except OverflowError:
            return struct.pack("<f", math.copysign(math.inf, number))
    word = number >> 32 if half == 1 else number
    return (word & MASK).to_bytes(4, "little")
