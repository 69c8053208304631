"""Parts of a tensor as views: at indices, along an axis, on a diagonal, and the gradients of those."""

from __future__ import annotations

from types import EllipsisType
from typing import TypeAlias, TypeVar

import numpy as np

from dl4all.errors import ArgumentError, ShapeError
from dl4all.ops.core import strides as layout
from dl4all.ops.core import tape
from dl4all.ops.core.exports import export
from dl4all.ops.core.limits import integer
from dl4all.ops.core.op import Kernel, Result, example, op
from dl4all.ops.core.tensor_base import (
    Array,
    Shape,
    TensorBase,
    contiguous_strides,
    host_int,
)
from dl4all.ops.memory.copy import COPY, MOVABLE_DTYPES, copy_into, fill_with, fresh_copy, new_like
from dl4all.ops.memory.views import contiguous

T = TypeVar("T", bound=TensorBase)


@export("dl", "Tensor")
def select(input: T, dim: int, index: int) -> T:
    """A view of the elements at `index` along axis `dim`, without that axis.

    Example:
        >>> import dl4all as dl
        >>> dl.select(dl.tensor([[1, 2], [3, 4]]), 0, 1).tolist()
        [3, 4]
    """
    axis = layout.axis("select", dim, len(input.shape))
    return _index(input, (*(layout.ALL,) * axis, host_int(index)))


@export("dl", "Tensor")
def narrow(input: T, dim: int, start: int, length: int) -> T:
    """A view of `length` indices along axis `dim`, from `start` on.

    Raises:
        ArgumentError: the axis is too short.

    Example:
        >>> import dl4all as dl
        >>> dl.narrow(dl.arange(5), 0, 1, 3).tolist()
        [1, 2, 3]
    """
    axis = layout.axis("narrow", dim, len(input.shape))
    size = input.shape[axis]
    start, length = integer("narrow", "start", start), integer("narrow", "length", length)
    first = start + size if start < 0 else start
    if not 0 <= first <= first + length <= size:
        raise ArgumentError(
            f"[narrow] start {start} and length {length} do not fit axis {axis} of shape {input.shape}"
        )
    return index(input, (*(layout.ALL,) * axis, slice(first, first + length)))


@export("dl", "Tensor")
def diagonal(input: T, offset: int = 0, dim1: int = 0, dim2: int = 1) -> T:
    """A view of the diagonal of axes `dim1` and `dim2`, `offset` elements above it, as the last axis.

    Raises:
        ArgumentError: the two axes are the same.

    Example:
        >>> import dl4all as dl
        >>> dl.diagonal(dl.tensor([[1, 2], [3, 4]])).tolist()
        [1, 4]
    """
    ndim = len(input.shape)
    first, second = (layout.axis("diagonal", d, ndim) for d in (dim1, dim2))
    if first == second:
        raise ArgumentError(f"[diagonal] dim1 and dim2 are the same axis, {first}")
    shape = input.shape
    integer("diagonal", "offset", offset)
    result: T = input.strided_view(
        *layout.diagonal(shape, input.strides, input.offset, offset, first, second)
    )
    region = layout.diagonal(shape, contiguous_strides(shape), 0, offset, first, second)
    tape.add_node(
        "diagonal", [input], [result], lambda grads, saved, needs: [put_region(grads[0], shape, region)]
    )
    return result


Region = tuple[Shape, Shape, int]
"""Shape, strides and offset of a view of a contiguous tensor whose elements do not share memory."""


def put_region(input: T, shape: Shape, region: Region) -> T:
    """Zeros of a shape with `input` at a region: the gradient of :func:`take_region`."""
    result: T = new_like(input, shape)
    fill_with(result, 0)
    copy_into(result.strided_view(*region), input)
    tape.add_node(
        "put_region", [input], [result], lambda grads, saved, needs: [take_region(grads[0], region)]
    )
    return result


def take_region(input: T, region: Region) -> T:
    """The elements in a region of `input`: the gradient of :func:`put_region`."""
    source, shape = contiguous(input), input.shape
    result: T = source.strided_view(region[0], region[1], source.offset + region[2])
    tape.add_node(
        "take_region",
        [source],
        [result],
        lambda grads, saved, needs: [put_region(grads[0], shape, region)],
    )
    return result


def clear_region(input: T, region: Region) -> T:
    """The elements of `input`, with zeros in a region."""
    result: T = fresh_copy(input)  # type: ignore[assignment]
    fill_with(result.strided_view(*region), 0)
    tape.add_node(
        "clear_region", [input], [result], lambda grads, saved, needs: [clear_region(grads[0], region)]
    )
    return result


IndexItem: TypeAlias = int | slice | EllipsisType | None
BasicIndex: TypeAlias = IndexItem | tuple[IndexItem, ...]
"""An index that selects a view."""


@export()
def index(input: T, key: BasicIndex) -> T:
    """A view of the part that ints, slices with positive steps, ``None`` and ``...`` select.

    Raises:
        ArgumentError: the index is of another kind, or out of range.
    """
    shape = input.shape
    result: T = input.strided_view(*layout.basic(key, shape, input.strides, input.offset))
    tape.add_node(
        "index", [input], [result], lambda grads, saved, needs: [index_backward(grads[0], key, shape)]
    )
    return result


_index = index  # for functions with a parameter `index`


def _infer_index_backward(input: TensorBase, key: BasicIndex, shape: Shape) -> Result:
    shape = tuple(shape)
    selected = layout.basic(key, shape, contiguous_strides(shape), 0)[0]
    if selected != input.shape:
        raise ShapeError(
            f"[index_backward] {key} selects shape {selected} of {shape}, the gradient has {input.shape}"
        )
    return shape, input.dtype


def _run_index_backward(out: TensorBase, input: TensorBase, key: BasicIndex, shape: Shape) -> None:
    fill_with(out, 0)
    copy_into(out.strided_view(*layout.basic(key, out.shape, out.strides, out.offset)), input)


@export()
@op(
    infer=_infer_index_backward,
    kernel=Kernel(
        _run_index_backward, tuple(by_size[4] for by_size in COPY.values()), MOVABLE_DTYPES, halves="widened"
    ),
    examples=(
        example((3, 5), key=(slice(1, 4), slice(None)), shape=(7, 5)),
        example((2, 1, 2), key=(slice(0, 4, 2), None, slice(1, 3)), shape=(5, 3)),
        example((7,), key=(2,), shape=(3, 7)),
        example(
            (2, 3, 2, 2, 2), key=(slice(0, 2), slice(1, None, 2), ..., slice(1, None)), shape=(3, 6, 2, 2, 3)
        ),
        example((0, 3), key=(slice(2, 2),), shape=(0, 3)),
    ),
    grad=lambda g, key: index(g, key),
)
def index_backward(input: Array, key: BasicIndex, shape: Shape) -> Array:
    """The gradient of :func:`index`: zeros of a shape, with `input` in the part that `key` selects.

    Args:
        input: of the shape that `key` selects, of any dtype.
        key: ints, slices with positive steps, None and ``...``.
        shape: the shape of the indexed tensor.

    Returns:
        Shape `shape`.

    Raises:
        ShapeError: `key` selects another shape.
        ArgumentError: `key` is of another kind, or out of range.

    Example:
        >>> import dl4all as dl
        >>> dl.ops.index_backward(dl.tensor([1.0, 2.0]), slice(1, 3), (4,)).tolist()
        [0.0, 1.0, 2.0, 0.0]
    """
    result = np.zeros(shape, input.dtype)
    result[key] = input
    return result
