"""Groups of weights in few bits, unpacked to vectors of floats (:mod:`dl4all.ops.linalg.packed_formats`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from dl4all.runtime.cpu.llvm import provider
from dl4all.runtime.cpu.llvm.ir import Code, IrValue
from dl4all.runtime.cpu.llvm.ir_types import vector


class PackedGroup(NamedTuple):
    """Weights with a scale of their own: ``(numbers - zero) * scale - offset``.

    Attributes:
        numbers: vectors of floats.
        scale, offset: floats; no offset is 0.
    """

    numbers: list[IrValue]
    scale: IrValue
    offset: IrValue | None = None


class GroupFormat(NamedTuple):
    """The groups of a format's blocks.

    Attributes:
        groups: of a block.
        zero: the number that stands for 0.
        group: ``group(code, data, scales, number)``: a group of the block that begins at these addresses.
    """

    groups: int
    zero: int
    group: Callable[[Code, IrValue, IrValue, int], PackedGroup]


def lanes_of_groups() -> int:
    """Numbers of a vector: a group of 16 is at least one."""
    return min(provider.processor().lanes(4), 16)


def _words(code: Code, data: IrValue, start: int, count: int) -> list[IrValue]:
    """Unsigned bytes, as vectors of 32 bits."""
    lanes = lanes_of_groups()
    return [
        code.unsigned(code.load(data, at, vector("i8", lanes)), "i32")
        for at in range(start, start + count, lanes)
    ]


def _floats(code: Code, words: list[IrValue]) -> list[IrValue]:
    return [code.convert(word, "float") for word in words]


def _half(code: Code, scales: IrValue, number: int) -> IrValue:
    return code.convert(code.load(scales, number, "half"), "float")


def _q4_0(code: Code, data: IrValue, scales: IrValue, number: int) -> PackedGroup:
    both = _words(code, data, 0, 16)
    return PackedGroup(_floats(code, [w & 15 for w in both] + [w >> 4 for w in both]), _half(code, scales, 0))


def _q8_0(code: Code, data: IrValue, scales: IrValue, number: int) -> PackedGroup:
    lanes = lanes_of_groups()
    numbers = [code.load(data, at, vector("i8", lanes)) for at in range(0, 32, lanes)]
    return PackedGroup(_floats(code, numbers), _half(code, scales, 0))


def _q4_k(code: Code, data: IrValue, scales: IrValue, number: int) -> PackedGroup:
    def small(at: int) -> IrValue:
        return code.unsigned(code.load(data, at, "i8"), "i32")

    if number < 4:
        factor, offset = small(number) & 63, small(number + 4) & 63
    else:
        last = small(number + 4)
        factor = last & 15 | (small(number - 4) >> 6) << 4
        offset = last >> 4 | (small(number) >> 6) << 4
    both = _words(code, data, 12 + number // 2 * 32, 32)
    numbers = [w >> 4 if number % 2 else w & 15 for w in both]
    scale, least = (
        _half(code, scales, at) * code.convert(value, "float") for at, value in enumerate((factor, offset))
    )
    return PackedGroup(_floats(code, numbers), scale, least)


def _q6_k(code: Code, data: IrValue, scales: IrValue, number: int) -> PackedGroup:
    half, part, piece = number // 8, number % 8 // 2, number % 2 * 16
    low = _words(code, data, half * 64 + part % 2 * 32 + piece, 16)
    high = _words(code, data, 128 + half * 32 + piece, 16)
    numbers = [(a >> 4 * (part // 2) & 15) | (b >> 2 * part & 3) << 4 for a, b in zip(low, high, strict=True)]
    factor = code.convert(code.load(data, 192 + number, "i8"), "float")
    return PackedGroup(_floats(code, numbers), _half(code, scales, 0) * factor)


GROUP_FORMATS = {
    "Q4_0": GroupFormat(1, 8, _q4_0),
    "Q8_0": GroupFormat(1, 0, _q8_0),
    "Q4_K": GroupFormat(8, 0, _q4_k),
    "Q6_K": GroupFormat(16, 32, _q6_k),
}
"""By the names of :data:`dl4all.ops.linalg.packed_formats.FORMATS`."""
