"""The three ops that indexing is made of: take rows, add rows up where they were taken from, put rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from dl4all.errors import ArgumentError, DTypeError, ShapeError
from dl4all.ops.core.exports import export
from dl4all.ops.core.launch import pack, run, shader, strided_grid
from dl4all.ops.core.op import REGISTRY, Kernel, Result, example, op, primitives
from dl4all.ops.core.tensor_base import Array, Shape, TensorBase, from_host
from dl4all.ops.indexing.indices import Indices
from dl4all.ops.memory.copy import MAX_WORD_BYTES, MOVABLE_DTYPES, broadcast_view, copy_into, word_shaders
from dl4all.ops.memory.views import contiguous, expand, reshape

WORKGROUP = 128
MOST_TERMS = 1024  # that are added up one after the other; of more, sums of pieces
TAKE_ROWS = {
    **word_shaders("indexing/take_rows.comp"),
    MAX_WORD_BYTES: shader("indexing/take_rows.comp", WORD="uvec4"),
}
TAKE_ROWS_BACKWARD = {
    1: shader("indexing/take_rows_backward.comp", VALUE="float"),
    4: shader("indexing/take_rows_backward.comp", VALUE="vec4"),
}
PUT_ROWS = word_shaders("indexing/put_rows.comp")


def _three_axes(name: str, shape: Shape) -> Shape:
    if len(shape) != 3:
        raise ShapeError(f"[{name}] expected shape (outer, size, inner), got {shape}")
    return shape


def _within(name: str, places: Indices, size: int) -> None:
    if len(places) and places.array.max() >= size:
        raise ArgumentError(f"[{name}] index {places.array.max()} is out of range for an axis of size {size}")


def _take_rows_shape(input: TensorBase, index: Any) -> Result:
    outer, size, inner = _three_axes("take_rows", input.shape)
    places = Indices.of(index)
    _within("take_rows", places, size)
    return (outer, len(places), inner), input.dtype


def _take_rows_run(out: TensorBase, input: TensorBase, index: Any) -> None:
    x, places = contiguous(input), Indices.of(index).on(input)
    _, size, inner = x.shape
    width = _together(inner, x, MAX_WORD_BYTES // out.dtype.itemsize)
    words = out.numel() // width
    push = pack(words, x.offset // width, size, out.shape[1], inner // width)
    run(TAKE_ROWS[width * out.dtype.itemsize], strided_grid(words, WORKGROUP), push, x, places, out)


def _together(inner: int, x: TensorBase, most: int) -> int:
    """How many elements of a row are moved at once: `most` where they lie at such multiples."""
    return 1 if inner % most or x.offset % most else most


@export()
@op(
    infer=_take_rows_shape,
    kernel=Kernel(_take_rows_run, (TAKE_ROWS[4], TAKE_ROWS[MAX_WORD_BYTES]), MOVABLE_DTYPES),
    examples=(
        example((3, 7, 5), index=(0, 6, 2, 2, -1, 3)),
        example((1, 5, 1), index=(4,)),
        example((2, 13, 1), index=tuple(range(12, -1, -1))),
        example((2, 3, 5), index=()),
        example((2, 0, 5), index=(-1,)),
        example((2, 5, 12), index=(0, 4, 2, 2, -1)),
    ),
    grad=lambda g, index, shapes: REGISTRY["take_rows_backward"](g, index, shapes[0][1]),
)
def take_rows(input: Array, index: Any) -> Array:
    """Rows of the middle axis in the order of an index; zeros where that is negative.

    Args:
        input: shape (outer, size, inner), of any dtype.
        index: `count` ints below `size`.

    Returns:
        Shape (outer, count, inner).

    Raises:
        ShapeError: the input has not three axes.
        ArgumentError: an index is out of range.

    Example:
        >>> import dl4all as dl
        >>> dl.ops.take_rows(dl.tensor([[[1.0], [2.0]]]), (1, -1, 0)).tolist()
        [[[2.0], [0.0], [1.0]]]
    """
    places = Indices.of(index).array
    if input.shape[1] == 0:
        return np.zeros((input.shape[0], len(places), input.shape[2]), input.dtype)
    rows = input[:, np.maximum(places, 0)]
    if (places < 0).any():
        rows[:, places < 0] = 0
    return rows


def _take_rows_backward_shape(input: TensorBase, index: Any, size: int) -> Result:
    outer, count, inner = _three_axes("take_rows_backward", input.shape)
    places = Indices.of(index)
    _within("take_rows_backward", places, size)
    if len(places) != count:
        raise ShapeError(
            f"[take_rows_backward] {len(places)} indices do not fit an input of shape {input.shape}"
        )
    return (outer, size, inner), input.dtype


def _take_rows_backward_run(out: TensorBase, input: TensorBase, index: Any, size: int) -> None:
    x, places = contiguous(input), Indices.of(index)
    order, starts = places.plan(size)
    counts = np.diff(starts)
    if counts.max(initial=0) > MOST_TERMS:
        pieces = -(-counts // MOST_TERMS)
        # The number of each row's piece: pieces of earlier places, and those of its own place before it.
        rank = np.arange(len(order)) - np.repeat(starts[:-1], counts)
        piece = np.full(len(places), -1, np.int32)
        piece[order] = np.repeat(np.cumsum(pieces) - pieces, counts) + rank // MOST_TERMS
        sums = REGISTRY["take_rows_backward"](x, Indices(piece), int(pieces.sum()))
        _take_rows_backward_run(out, sums, Indices(np.repeat(np.arange(size), pieces)), size)
        return
    host = np.concatenate((starts + np.int32(size + 1), order)).astype(np.int32)
    plan = from_host(type(input).result_class, host, input.device, copy=False)
    width = _together(x.shape[2], x, 4)
    words = out.numel() // width
    push = pack(words, x.offset // width, size, x.shape[1], x.shape[2] // width)
    run(TAKE_ROWS_BACKWARD[width], strided_grid(words, WORKGROUP), push, x, plan, out)


@export()
@op(
    infer=_take_rows_backward_shape,
    kernel=Kernel(_take_rows_backward_run, tuple(TAKE_ROWS_BACKWARD.values())),
    examples=(
        example((3, 6, 5), index=(0, 6, 2, 2, -1, 2), size=7),
        example((1, 7, 1), index=(4, 4, 4, 4, 4, 4, 4), size=5),
        example((2, 0, 3), index=(), size=5),
        example((0, 2, 5), index=(0, 1), size=3),
        example((2, 5, 8), index=(0, 3, 2, -1, 2), size=5),
    ),
    grad=lambda g, index: REGISTRY["take_rows"](g, index),
)
def take_rows_backward(input: Array, index: Any, size: int) -> Array:
    """The gradient of :func:`take_rows`: each row added to the place that it was taken from.

    Args:
        input: shape (outer, count, inner).
        index: `count` ints below `size`; rows of negative ones are left out.
        size: of the middle axis of the result.

    Returns:
        Shape (outer, size, inner).

    Raises:
        ShapeError: the input has not three axes, or another number of rows.
        ArgumentError: an index is out of range.

    Example:
        >>> import dl4all as dl
        >>> dl.ops.take_rows_backward(dl.tensor([[[1.0], [2.0], [4.0]]]), (1, 0, 1), 2).tolist()
        [[[2.0], [5.0]]]
    """
    order, starts = Indices.of(index).plan(size)
    sums = np.zeros((input.shape[0], size, input.shape[2]), input.dtype)
    some = np.diff(starts) > 0  # reduceat takes an empty group for one of one element
    if some.any() and sums.size:
        sums[:, some] = np.add.reduceat(input[:, order], starts[:-1][some], axis=1, dtype=input.dtype)
    return sums


def _put_rows_shape(input: TensorBase, source: TensorBase, index: Any) -> Result:
    places = Indices.of(index)
    if len(input.shape) != 2 or source.shape != (len(places), input.shape[1]):
        raise ShapeError(
            "[put_rows] expected an input of shape (size, inner) and a source of shape "
            f"({len(places)}, inner), got {input.shape} and {source.shape}"
        )
    if source.dtype != input.dtype:
        raise DTypeError(
            f"[put_rows] expected operands of one dtype, got {input.dtype} and {source.dtype}; "
            "convert with .to(dtype)"
        )
    _within("put_rows", places, input.shape[0])
    return input.shape, input.dtype


def _put_rows_run(out: TensorBase, input: TensorBase, source: TensorBase, index: Any) -> None:
    copy_into(out, input)
    write_rows(out, source, Indices.of(index).last())


def write_rows(target: TensorBase, source: TensorBase, places: Indices) -> None:
    """Write rows to contiguous memory on a device; no place may be named twice."""
    rows = broadcast_view(source, (len(places), target.shape[-1]))
    if 0 in rows.shape:
        return
    if rows.dtype != target.dtype:
        rows = primitives.cast(rows, target.dtype.name)
    push = pack(rows.numel(), rows.offset, *rows.strides, target.offset, rows.shape[1])
    code = PUT_ROWS[target.dtype.itemsize]
    run(code, strided_grid(rows.numel(), WORKGROUP), push, rows, places.on(target), target)


def _of_put_input(g: Any, index: Any) -> Any:
    zero = from_host(type(g).result_class, np.zeros((1, 1), g.dtype), g.device, copy=False)
    return put_rows(g, expand(zero, (len(Indices.of(index)), g.shape[1])), index)


@export()
@op(
    infer=_put_rows_shape,
    kernel=Kernel(_put_rows_run, (PUT_ROWS[4],), MOVABLE_DTYPES),
    examples=(
        example((7, 5), (3, 5), index=(6, 0, 3)),
        example((5, 3), (4, 3), index=(1, 4, 1, -1)),
        example((13, 1), (1, 1), index=(12,)),
        example((3, 5), (0, 5), index=()),
    ),
    grad=(_of_put_input, lambda g, index: _of_put_source(g, index)),
)
def put_rows(input: Array, source: Array, index: Any) -> Array:
    """Rows with some of them replaced; of several for one place the last stays.

    Args:
        input: shape (size, inner), of any dtype.
        source: shape (count, inner).
        index: `count` ints below `size`; rows of negative ones go nowhere.

    Returns:
        Shape (size, inner).

    Raises:
        ShapeError: the shapes do not fit.
        DTypeError: the dtypes differ.
        ArgumentError: an index is out of range.

    Example:
        >>> import dl4all as dl
        >>> dl.ops.put_rows(dl.zeros(3, 1), dl.tensor([[5.0]]), (1,)).tolist()
        [[0.0], [5.0], [0.0]]
    """
    places = Indices.of(index).last().array
    result = np.array(input)
    result[places[places >= 0]] = source[places >= 0]
    return result


def _of_put_source(g: Any, index: Any) -> Any:
    rows = take_rows(reshape(g, 1, *g.shape), Indices.of(index).last())
    return reshape(rows, rows.shape[1:])
