"""Rows by index: gathered, replaced, and added in the order in which they come.

What is added or replaced may name a row several times. A thread takes some columns of all rows, or where rows
are short the rows of a range of numbers, and goes through all indices in their order, so that sums and last
writers do not depend on the threads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from dl4all.host_kernels.lib.rows import CHUNK, row_passes
from dl4all.host_kernels.memory.copies import RAW_TYPES
from dl4all.host_kernels.reduce.reduction_units import KINDS
from dl4all.ops.core.kernels.host_kernel import ArrayLayout, HostLaunch, host_kernel
from dl4all.ops.core.kernels.launch import NoKernel
from dl4all.runtime.cpu.llvm import provider
from dl4all.runtime.cpu.llvm.ir import Code, IrModule, IrValue
from dl4all.runtime.cpu.llvm.ir_types import LLVM_TYPES, SIZES, vector

RANGES = 8  # of row numbers at most, for each of which all indices are looked at
COLUMN_BYTES = 128  # of a row's part, at least
RANGE_WORK = 4 * CHUNK  # elements for a range, at least
SUMMED_DTYPES = ("float32", "float64", "int64", "int32", "int16", "int8", "uint8")


def _index(index: Any) -> ArrayLayout:
    """
    Raises:
        NoKernel: the indices are no tensor of int32.
    """
    if (
        not isinstance(index, ArrayLayout)
        or index.dtype != np.int32
        or not index.is_contiguous()
        or 0 in index.shape
    ):
        raise NoKernel("indices on the host")
    return index


def _lanes(row: int, itemsize: int) -> int:
    """Lanes of vectors that a row is worth."""
    return provider.processor().lanes(itemsize) if row > 1 else 1


def _row_stride(x: ArrayLayout) -> int:
    """The elements from one row to the next, if a row's elements lie side by side.

    Raises:
        NoKernel: they do not.
    """
    if x.shape[-1] > 1 and x.strides[-1] != 1:
        raise NoKernel("elements of a row do not lie side by side")
    return x.strides[-2]


# Gather


@host_kernel("take_rows")
def prepare_take_rows(out: ArrayLayout, x: ArrayLayout, index: Any) -> HostLaunch:
    """
    Raises:
        NoKernel: the indices are no tensor, or rows have gaps.
    """
    indices = _index(index)
    outer, count, row = out.shape
    if row == 1 and outer == 1:
        constants = [count, CHUNK, x.strides[1]]
        lanes = provider.processor().lanes(max(x.dtype.itemsize, 4))
        return HostLaunch(take_elements, (RAW_TYPES[x.dtype.itemsize], lanes), 3, constants, work=count)
    lanes = _lanes(row, x.dtype.itemsize)
    constants = [outer * count, max(1, CHUNK // row), count, row, x.strides[0], _row_stride(x)]
    key = (RAW_TYPES[x.dtype.itemsize], lanes)
    return HostLaunch(take_rows, key, 3, constants, work=indices.numel() * outer * row)


def take_rows(element: str, lanes: int) -> IrModule:
    """Slots: input, indices, result, rows, those of a chunk, indices, a row's elements, two strides.

    A negative index gives a row of zeros.
    """
    module = IrModule()
    type = vector(element, lanes)
    with module.part("rows") as code:
        _, begin, end = code.parameters
        x, index, out = (code.slot(number, "ptr") for number in range(3))
        count, row, outer_stride, stride = (code.slot(3 + place) for place in range(2, 6))
        with code.loop(begin, end) as number:
            outer = number // count
            place = code.convert(code.load(index, number - outer * count, "i32"), "i64")
            source = code.at(x, outer * outer_stride + place * stride, element)
            target = code.at(out, number * row, element)
            with code.if_(place >= 0):
                _copy_row(code, source, target, row, type, lanes)
            with code.if_(place < 0):
                zeros = code.constant(type, 0)
                _each(code, row, lanes, lambda i, mask: code.store(zeros, target, i, mask))
        part = code
    with module.kernel("take_rows") as code:
        code.parallel(part, code.parameters[0], code.slot(3), code.slot(4))
    return module


def take_elements(element: str, lanes: int) -> IrModule:
    """Rows of one element. Slots: input, indices, result, indices, those of a chunk, the stride."""
    module = IrModule()
    type = vector(element, lanes)
    with module.part("elements") as code:
        _, begin, end = code.parameters
        x, index, out = (code.slot(number, "ptr") for number in range(3))
        stride = code.splat(code.slot(5), lanes)

        def take(i: IrValue, mask: IrValue | None) -> None:
            place = code.convert(code.load(index, i, vector("i32", lanes), mask), "i64")
            there = place >= 0
            there = there if mask is None else there & mask
            code.store(code.gather(x, place * stride, type, there), out, i, mask)

        row_passes(code, end, lanes, take, begin)
        part = code
    with module.kernel("take_elements") as code:
        code.parallel(part, code.parameters[0], code.slot(3), code.slot(4))
    return module


def _each(code: Code, row: IrValue, lanes: int, step: Callable[[IrValue, IrValue | None], None]) -> None:
    if lanes == 1:
        step(code.as_value("i64", 0), None)
    else:
        row_passes(code, row, lanes, step)


def _copy_row(code: Code, source: IrValue, target: IrValue, row: IrValue, type: str, lanes: int) -> None:
    _each(code, row, lanes, lambda i, mask: code.store(code.load(source, i, type, mask), target, i, mask))


# Scatter


class _Cuts(NamedTuple):
    """The division of rows: the rows of a range, and the elements of a row's part."""

    rows: int
    columns: int

    def constants(self, outer: int, size: int, row: int) -> list[int]:
        """Units, ranges, rows of a range, parts of a row, elements of a part."""
        ranges, parts = -(-size // self.rows), -(-row // self.columns)
        return [outer * ranges * parts, ranges, self.rows, parts, self.columns]


def _cuts(size: int, row: int, itemsize: int, work: int) -> _Cuts:
    """The division of rows for so many elements that are combined or written."""
    # A short row takes hardly longer to add than its index to look at, which each range does.
    pieces = max(1, min(RANGES, work // RANGE_WORK, 2 * row))
    parts = min(pieces, row * itemsize // COLUMN_BYTES)
    if parts > 1:
        return _Cuts(size, -(-row * itemsize // (parts * COLUMN_BYTES)) * COLUMN_BYTES // itemsize)
    return _Cuts(-(-size // min(pieces, size)), row)


COMBINED: dict[str, Callable[[Code, IrValue, IrValue], IrValue]] = {
    "add": KINDS["sum"].step,
    "sum": KINDS["sum"].step,
    "prod": KINDS["prod"].step,
    "amax": KINDS["amax"].step,
    "amin": KINDS["amin"].step,
}
"""The new value of an element where another one is put, by mode. "add" begins with zeros."""

COPYING = ("sum", "prod", "amax", "amin", "replace")
"""Modes that begin with a copy of an input."""


@host_kernel("take_rows_backward", copies=True)
def prepare_take_rows_backward(out: ArrayLayout, x: ArrayLayout, index: Any, size: int) -> HostLaunch:
    """
    Raises:
        NoKernel: the indices are no tensor, rows have gaps, or the dtype is float16 or bool.
    """
    return _combining_launch("add", out, x, index)


@host_kernel("combine_rows")
def prepare_combine_rows(
    mode: str, reads: Sequence[ArrayLayout], writes: Sequence[ArrayLayout]
) -> HostLaunch:
    """The launch that reads an input, rows and indices, and writes the input with the rows combined into it.

    Args:
        mode: "sum", "prod", "amax" or "amin".
        reads, writes: layouts; the input and the result have shape (outer, size, inner).

    Raises:
        NoKernel: the input or rows have gaps, or there is no such sum.
    """
    x, rows, index = reads
    if not x.is_contiguous() or x.dtype != rows.dtype or (mode != "sum" and x.dtype.kind == "u"):
        raise NoKernel("other than one dtype without gaps")
    return _combining_launch(mode, writes[0], rows, index)


def _combining_launch(mode: str, out: ArrayLayout, rows: ArrayLayout, index: Any) -> HostLaunch:
    _index(index)
    if rows.dtype.name not in SUMMED_DTYPES:
        raise NoKernel(f"sums of {rows.dtype}")
    (outer, count, row), size = rows.shape, out.shape[1]
    cuts = _cuts(size, row, rows.dtype.itemsize, outer * count * row)
    constants = [
        *cuts.constants(outer, size, row), size, count, row, rows.strides[0], _row_stride(rows), size * row,
        outer * size * row,
    ]  # fmt: skip
    key = (LLVM_TYPES[rows.dtype.name], _lanes(row, rows.dtype.itemsize), mode)
    return HostLaunch(
        put_rows, key, 4 if mode in COPYING else 3, constants, work=outer * (count + size) * row
    )


@host_kernel("put_rows", copies=True)
def prepare_put_rows(out: ArrayLayout, x: ArrayLayout, source: ArrayLayout, index: Any) -> HostLaunch:
    """
    Raises:
        NoKernel: the indices are no tensor, or rows have gaps.
    """
    _index(index)
    if not x.is_contiguous():
        raise NoKernel("an input that is not contiguous")
    (size, row), count = x.shape, source.shape[0]
    cuts = _cuts(size, row, x.dtype.itemsize, count * row)
    constants = [*cuts.constants(1, size, row), size, count, row, 0, _row_stride(source), 0, size * row]
    key = (RAW_TYPES[x.dtype.itemsize], _lanes(row, x.dtype.itemsize), "replace")
    return HostLaunch(put_rows, key, 4, constants, work=(size + count) * row)


@host_kernel("write_rows")
def prepare_write_rows(reads: Sequence[ArrayLayout], writes: Sequence[ArrayLayout]) -> HostLaunch:
    """The launch of a change in place: reads rows and indices, writes the rows that they name.

    Raises:
        NoKernel: rows have gaps.
    """
    (source, index), target = reads, writes[0]
    _index(index)
    size, row = target.shape
    if source.dtype != target.dtype or not target.is_contiguous():
        raise NoKernel("other than rows of one dtype in contiguous memory")
    cuts = _cuts(size, row, target.dtype.itemsize, source.numel())
    constants = [*cuts.constants(1, size, row), size, source.shape[0], row, 0, _row_stride(source), 0]
    key = (RAW_TYPES[target.dtype.itemsize], _lanes(row, target.dtype.itemsize), "write")
    return HostLaunch(put_rows, key, 3, constants, work=source.numel())


def put_rows(element: str, lanes: int, mode: str) -> IrModule:
    """Rows combined with others, or put in the places of others: in a copy ("replace"), in place ("write").

    Slots: the input if it is copied, rows, indices, result, then units, ranges, rows of a range, parts of a
    row, elements of a part, rows of the result, indices, a row's elements, strides of outer and row, elements
    of an outer part of the result, and all of its elements.
    """
    module = IrModule()
    type = vector(element, lanes)
    first = 4 if mode in COPYING else 3
    wide_lanes = provider.processor().lanes(SIZES[element])
    wide = vector(element, wide_lanes)
    with module.part("beginning") as code:
        _, begin, end = code.parameters
        start = code.at(code.slot(first - 1, "ptr"), begin, element)
        if mode == "add":
            zeros = code.constant(wide, 0)
            row_passes(code, end - begin, wide_lanes, lambda i, mask: code.store(zeros, start, i, mask))
        elif mode in COPYING:
            _copy_row(
                code, code.at(code.slot(0, "ptr"), begin, element), start, end - begin, wide, wide_lanes
            )
        beginning = code
    with module.part("ranges") as code:
        _, begin, end = code.parameters
        rows, index, out = (code.slot(number, "ptr") for number in range(first - 3, first))
        ranges, range_rows, parts, columns, size, count, row, outer_stride, stride, outer_size = (
            code.slot(first + place) for place in range(1, 11)
        )
        with code.loop(begin, end) as unit:
            left, rest = unit % parts * columns, unit // parts
            width = code.intrinsic("smin", left + columns, row) - left
            outer = rest // ranges
            low = (rest - outer * ranges) * range_rows
            high = code.intrinsic("smin", low + range_rows, size)
            target = code.at(out, outer * outer_size + left, element)
            source = code.at(rows, outer * outer_stride + left, element)
            with code.loop(0, count) as i:
                place = code.convert(code.load(index, i, "i32"), "i64")
                with code.if_((place >= low) & (place < high)):
                    new, kept = code.at(source, i * stride, element), code.at(target, place * row, element)

                    def combine(j: IrValue, mask: IrValue | None) -> None:
                        old, term = (code.load(array, j, type, mask) for array in (kept, new))
                        code.store(COMBINED[mode](code, old, term), kept, j, mask)

                    if mode in COMBINED:
                        _each(code, width, lanes, combine)
                    else:
                        _copy_row(code, new, kept, width, type, lanes)
        part = code
    with module.kernel("put_rows") as code:
        if mode != "write":
            code.parallel(beginning, code.parameters[0], code.slot(first + 11), CHUNK)
        code.parallel(part, code.parameters[0], code.slot(first), 1)
    return module
