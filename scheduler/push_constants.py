"""Push constants of which some words are others in each call, and the numbers that they are packed from.

Such a number, as the counter of a random generator, is marked where it is made
(:func:`dl4all.scheduler.listeners.vary`), as a :class:`VaryingInt` or :class:`VaryingFloat`. It keeps its
mark on its way through arguments of ops, up to the :class:`PushConstants`, and so a replay knows which words
to compute anew.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

MASK = 2**32 - 1
Again = Callable[[], Sequence[int | float]]
"""Takes the host's part of a call again, such as counting a step, and returns the numbers of this time."""


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
