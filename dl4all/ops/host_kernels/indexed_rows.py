"""Rows by index: gathered, replaced, and added in the order in which they come.

What is added or replaced may name a row several times. A thread takes the rows of a range of numbers, and
goes through all indices in their order, so that sums and last writers do not depend on the threads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dl4all.ops.core.host_kernel import HostLaunch, Layout, host_kernel
from dl4all.ops.core.launch import NoKernel
from dl4all.ops.host_kernels.copies import RAW_TYPES
from dl4all.ops.host_kernels.rows import CHUNK, row_passes
from dl4all.runtime.cpu.llvm import provider
from dl4all.runtime.cpu.llvm.ir import LLVM_TYPES, SIZES, Code, Module, Value, vector

RANGES = 8  # of row numbers at most, for each of which all indices are looked at
RANGE_WORK = 4 * CHUNK  # elements for a range, at least
SUMMED_DTYPES = ("float32", "float64", "int64", "int32", "int16", "int8", "uint8")


def _index(index: Any) -> Layout:
    """
    Raises:
        NoKernel: the indices are no tensor of int32.
    """
    if (
        not isinstance(index, Layout)
        or index.dtype != np.int32
        or not index.is_contiguous()
        or 0 in index.shape
    ):
        raise NoKernel("indices on the host")
    return index


def _lanes(row: int, itemsize: int) -> int:
    """Lanes of vectors that a row is worth."""
    return provider.processor().lanes(itemsize) if row > 1 else 1


def _row_stride(x: Layout) -> int:
    """The elements from one row to the next, if a row's elements lie side by side.

    Raises:
        NoKernel: they do not.
    """
    if x.shape[-1] > 1 and x.strides[-1] != 1:
        raise NoKernel("elements of a row do not lie side by side")
    return x.strides[-2]


# Gather


@host_kernel("take_rows")
def prepare_take_rows(out: Layout, x: Layout, index: Any) -> HostLaunch:
    """
    Raises:
        NoKernel: the indices are no tensor, or rows have gaps.
    """
    indices = _index(index)
    outer, count, row = out.shape
    lanes = _lanes(row, x.dtype.itemsize)
    constants = [outer * count, max(1, CHUNK // row), count, row, x.strides[0], _row_stride(x)]
    key = (RAW_TYPES[x.dtype.itemsize], lanes)
    return HostLaunch(take_rows, key, 3, constants, work=indices.numel() * outer * row)


def take_rows(element: str, lanes: int) -> Module:
    """Slots: input, indices, result, rows, those of a chunk, indices, a row's elements, strides of outer and row.

    A negative index gives a row of zeros.
    """
    module = Module()
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


def _each(code: Code, row: Value, lanes: int, step: Callable[[Value, Value | None], None]) -> None:
    if lanes == 1:
        step(code.as_value("i64", 0), None)
    else:
        row_passes(code, row, lanes, step)


def _copy_row(code: Code, source: Value, target: Value, row: Value, type: str, lanes: int) -> None:
    _each(code, row, lanes, lambda i, mask: code.store(code.load(source, i, type, mask), target, i, mask))


# Scatter


def _ranges(size: int, work: int) -> int:
    """How many rows a range has, for so many elements that are added or written."""
    ranges = max(1, min(RANGES, work // RANGE_WORK, size))
    return -(-size // ranges)


@host_kernel("take_rows_backward")
def prepare_take_rows_backward(out: Layout, x: Layout, index: Any, size: int) -> HostLaunch:
    """
    Raises:
        NoKernel: the indices are no tensor, rows have gaps, or the dtype is float16 or bool.
    """
    indices = _index(index)
    if x.dtype.name not in SUMMED_DTYPES:
        raise NoKernel(f"sums of {x.dtype}")
    outer, count, row = x.shape
    range_rows = _ranges(size, outer * count * row)
    constants = [
        outer * -(-size // range_rows), -(-size // range_rows), range_rows, size, count, row,
        x.strides[0], _row_stride(x), size * row,
    ]  # fmt: skip
    key = (LLVM_TYPES[x.dtype.name], _lanes(row, x.dtype.itemsize), "add")
    return HostLaunch(put_rows, key, 3, constants, work=indices.numel() * outer * row)


@host_kernel("put_rows")
def prepare_put_rows(out: Layout, x: Layout, source: Layout, index: Any) -> HostLaunch:
    """
    Raises:
        NoKernel: the indices are no tensor, or rows have gaps.
    """
    _index(index)
    if not x.is_contiguous():
        raise NoKernel("an input that is not contiguous")
    (size, row), count = x.shape, source.shape[0]
    range_rows = _ranges(size, count * row)
    ranges = -(-size // range_rows)
    constants = [ranges, ranges, range_rows, size, count, row, 0, _row_stride(source), 0]
    key = (RAW_TYPES[x.dtype.itemsize], _lanes(row, x.dtype.itemsize), "replace")
    return HostLaunch(put_rows, key, 4, constants, work=(size + count) * row)


@host_kernel("write_rows")
def prepare_write_rows(reads: Sequence[Layout], writes: Sequence[Layout]) -> HostLaunch:
    """The launch of a change in place: reads rows and indices, writes the rows that they name.

    Raises:
        NoKernel: rows have gaps.
    """
    (source, index), target = reads, writes[0]
    _index(index)
    size, row = target.shape
    if source.dtype != target.dtype or not target.is_contiguous():
        raise NoKernel("other than rows of one dtype in contiguous memory")
    range_rows = _ranges(size, source.numel())
    ranges = -(-size // range_rows)
    constants = [ranges, ranges, range_rows, size, source.shape[0], row, 0, _row_stride(source), 0]
    key = (RAW_TYPES[target.dtype.itemsize], _lanes(row, target.dtype.itemsize), "write")
    return HostLaunch(put_rows, key, 3, constants, work=source.numel())


def put_rows(element: str, lanes: int, mode: str) -> Module:
    """Rows added to zeros ("add"), put in the places of others in a copy ("replace"), or in place ("write").

    Slots: the input for "replace", rows, indices, result, then units, ranges, rows of a range, rows of the
    result, indices, a row's elements, strides of outer and row, elements of an outer part of the result.
    """
    module = Module()
    type = vector(element, lanes)
    first = 4 if mode == "replace" else 3
    with module.part("ranges") as code:
        _, begin, end = code.parameters
        rows, index, out = (code.slot(number, "ptr") for number in range(first - 3, first))
        ranges, range_rows, size, count, row, outer_stride, stride, outer_size = (
            code.slot(first + place) for place in range(1, 9)
        )
        with code.loop(begin, end) as unit:
            outer = unit // ranges
            low = (unit - outer * ranges) * range_rows
            high = code.intrinsic("smin", low + range_rows, size)
            target = code.at(out, outer * outer_size, element)
            source = code.at(rows, outer * outer_stride, element)
            wide_lanes = provider.processor().lanes(SIZES[element])
            wide = vector(element, wide_lanes)
            if mode == "add":
                start, zeros = code.at(target, low * row, element), code.constant(wide, 0)
                row_passes(
                    code, (high - low) * row, wide_lanes, lambda i, mask: code.store(zeros, start, i, mask)
                )
            elif mode == "replace":
                start, old = (code.at(array, low * row, element) for array in (out, code.slot(0, "ptr")))
                _copy_row(code, old, start, (high - low) * row, wide, wide_lanes)
            with code.loop(0, count) as i:
                place = code.convert(code.load(index, i, "i32"), "i64")
                with code.if_((place >= low) & (place < high)):
                    new, kept = code.at(source, i * stride, element), code.at(target, place * row, element)

                    def add(j: Value, mask: Value | None) -> None:
                        total = code.load(kept, j, type, mask) + code.load(new, j, type, mask)
                        code.store(total, kept, j, mask)

                    if mode == "add":
                        _each(code, row, lanes, add)
                    else:
                        _copy_row(code, new, kept, row, type, lanes)
        part = code
    with module.kernel("put_rows") as code:
        code.parallel(part, code.parameters[0], code.slot(first), 1)
    return module
