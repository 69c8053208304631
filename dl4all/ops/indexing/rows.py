"""Row gather, its adjoint scatter-add, and row scatter: the three ops under all indexing functions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np

from dl4all.errors import DTypeError, ShapeError
from dl4all.ops.core import tape
from dl4all.ops.core.exports import export
from dl4all.ops.core.kernels.host_work import WorkKernel, host_work
from dl4all.ops.core.kernels.kernel_function import kernel_function
from dl4all.ops.core.kernels.launch import NoKernel, run, shader, strided_grid
from dl4all.ops.core.kernels.push_block import PushBlock
from dl4all.ops.core.op import SHARED, Kernel, Result, empty, example, op, primitives
from dl4all.ops.core.tensor_base import Array, Shape, TensorBase, contiguous_strides, from_host
from dl4all.ops.core.vmap_hook import BatchedTensorBase
from dl4all.ops.elementwise.kernels import broadcast_view
from dl4all.ops.indexing.device_indices import group_plan, sorted_pairs
from dl4all.ops.indexing.indices import Indices, out_of_range
from dl4all.ops.memory.copy import (
    MAX_WORD_BYTES,
    MOVED_DTYPES,
    SHORT_DTYPES,
    as_words,
    copy_into,
    word_shaders,
)
from dl4all.ops.memory.views import contiguous, expand, reshape

T = TypeVar("T", bound=TensorBase)

WORKGROUP = 128
MAX_SEQUENTIAL_TERMS = 1024
"""Terms of a sum that one invocation adds up; a longer sum is one of partial sums."""

VALUES = {
    ("float32", 1): "float",
    ("float32", 4): "vec4",
    ("int32", 1): "int",
    ("int32", 4): "ivec4",
    ("int64", 1): "uvec2",
}
"""Types of the sums of an invocation, by dtype and the number of elements."""
TAKE_ROWS_PUSH = PushBlock(
    "indexing/take_rows.comp", "uint n, x_offset, outer_stride, row_stride, column_stride, count, inner;"
)
TAKE_ROWS_BACKWARD_PUSH = PushBlock(
    "indexing/take_rows_backward.comp", "uint n, x_offset, size, count, inner;", HEADS=0
)
HEADS_PUSH = PushBlock(
    "indexing/take_rows_backward.comp", "uint n, x_offset, size, count, inner, chunk, chunks;", HEADS=1
)
TAKE_ROWS_HEADS_PUSH = PushBlock(
    "indexing/take_rows_heads.comp",
    "uint n, x_offset, chunk, count, inner, chunks;",
)
PUT_ROWS_PUSH = PushBlock(
    "indexing/put_rows.comp",
    "uint n, x_offset, x_row_stride, x_column_stride, y_offset, inner;",
)
TAKE_ROWS = {
    **word_shaders("indexing/take_rows.comp"),
    MAX_WORD_BYTES: shader("indexing/take_rows.comp", WORD="uvec4"),
}
TAKE_ROWS_BACKWARD = {
    (dtype, width, heads): shader(
        "indexing/take_rows_backward.comp", VALUE=value, INT64=int(dtype == "int64"), HEADS=int(heads)
    )
    for (dtype, width), value in VALUES.items()
    for heads in (False, True)
}
"""By dtype, the elements that an invocation adds at once, and whether sums are cut into chunks."""
TAKE_ROWS_HEADS = {
    (dtype, width): shader("indexing/take_rows_heads.comp", VALUE=value, INT64=int(dtype == "int64"))
    for (dtype, width), value in VALUES.items()
}
PUT_ROWS = word_shaders("indexing/put_rows.comp")

# Launched for indices that stay on the device alone.
SHARED.extend(
    (*TAKE_ROWS_HEADS.values(), *(TAKE_ROWS_BACKWARD[dtype, width, True] for dtype, width in VALUES))
)

WRITE_ON_HOST = WorkKernel("write_rows")
SUMMED_DTYPES = ("float32", "int64", "int32", *SHORT_DTYPES)


def _check_three_axes(name: str, shape: Shape) -> Shape:
    if len(shape) != 3:
        raise ShapeError(f"[{name}] expected shape (outer, size, inner), got {shape}")
    return shape


def _check_range(name: str, indices: Indices, size: int) -> None:
    indices.check_below(size, partial(out_of_range, name, size))


def _vector_width(inner: int, x: TensorBase, width: int) -> int:
    """Elements of a row that are moved at once: `width` if rows and offset are multiples of it, else 1."""
    return 1 if inner % width or x.offset % width else width


def _words_of_rows(x: TensorBase) -> Any:
    """Rows of short elements as rows of int32, which hold several each; None where they do not fit."""
    count = 4 // x.dtype.itemsize
    *outer, inner = x.shape
    *strides, step = x.strides
    if (inner > 1 and step != 1) or any(n % count for n in (inner, x.offset, *strides)):
        return None
    cls = type(x).result_class
    parts = tuple(stride // count for stride in strides)
    return cls(
        x.storage, (*outer, inner // count), np.dtype(np.int32), x.device, (*parts, 1), x.offset // count
    )


def _summed_width(x: TensorBase) -> int:
    return 1 if x.dtype.itemsize > 4 else _vector_width(x.shape[2], x, 4)


# Gather


def _infer_take_rows(input: TensorBase, index: Any) -> Result:
    outer, size, inner = _check_three_axes("take_rows", input.shape)
    indices = Indices.of(index)
    _check_range("take_rows", indices, size)
    return (outer, len(indices), inner), input.dtype


def _run_take_rows(out: TensorBase, input: TensorBase, index: Any) -> None:
    if out.dtype.itemsize < 4:
        target, source = _words_of_rows(out), _words_of_rows(input)
        if target is None or source is None:
            as_words(_run_take_rows, out, [input], index)
        else:
            _run_take_rows(target, source, index)
        return
    indices = Indices.of(index).on(input)
    inner, (outer_stride, row_stride, column_stride) = input.shape[2], input.strides
    width = _vector_width(inner, input, MAX_WORD_BYTES // out.dtype.itemsize)
    if (inner > 1 and column_stride != 1) or outer_stride % width or row_stride % width:
        width = 1
    words = out.numel() // width
    push = TAKE_ROWS_PUSH.pack(
        n=words,
        x_offset=input.offset // width,
        outer_stride=outer_stride // width,
        row_stride=row_stride // width,
        column_stride=column_stride,
        count=out.shape[1],
        inner=inner // width,
    )
    run(TAKE_ROWS[width * out.dtype.itemsize], strided_grid(words, WORKGROUP), push, input, indices, out)


@export()
@op(
    infer=_infer_take_rows,
    kernel=Kernel(
        _run_take_rows,
        (TAKE_ROWS[4], TAKE_ROWS[MAX_WORD_BYTES]),
        MOVED_DTYPES,
        halves="moved",
    ),
    examples=(
        example((3, 7, 5), index=(0, 6, 2, 2, -1, 3)),
        example((1, 5, 1), index=(4,)),
        example((2, 13, 1), index=tuple(range(12, -1, -1))),
        example((2, 3, 5), index=()),
        example((2, 0, 5), index=(-1,)),
        example((2, 5, 12), index=(0, 4, 2, 2, -1)),
    ),
)
def take_rows(input: Array, index: Sequence[int] | Indices) -> Array:
    """Select rows of the middle axis by index; a negative index gives a row of zeros.

    Args:
        input: shape (outer, size, inner), of any dtype.
        index: `count` ints below `size`.

    Returns:
        Shape (outer, count, inner).

    Raises:
        ShapeError: the input does not have three axes.
        ArgumentError: an index is out of range.

    Example:
        >>> import dl4all as dl
        >>> dl.ops.take_rows(dl.tensor([[[1.0], [2.0]]]), (1, -1, 0)).tolist()
        [[[2.0], [0.0], [1.0]]]
    """
    indices = Indices.of(index).array
    if input.shape[1] == 0:
        return np.zeros((input.shape[0], len(indices), input.shape[2]), input.dtype)
    rows = input[:, np.maximum(indices, 0)]
    if (indices < 0).any():
        rows[:, indices < 0] = 0
    return rows


def each_once(input: T, axes: Iterable[int]) -> T:
    """A view in which axes that repeat their elements have one; the tensor where gradients flow to it."""
    if 0 not in input.strides or tape.wants_gradient(input) or isinstance(input, BatchedTensorBase):
        return input
    shape = list(input.shape)
    for axis in axes:
        if input.strides[axis] == 0:
            shape[axis] = min(shape[axis], 1)
    same = tuple(shape) == input.shape
    return input if same else input.strided_view(tuple(shape), input.strides, input.offset)


def steps_of(once: Shape, shape: Shape) -> Shape:
    """The weight of an index along each axis of a shape in the flattened elements of :func:`each_once`."""
    steps = zip(once, shape, contiguous_strides(once), strict=True)
    return tuple([step if one == size else 0 for one, size, step in steps])


def as_three_axes(tensor: T, axis: int) -> T:
    """The tensor with the axes before `axis` and those behind it flattened: (outer, size, inner)."""
    shape = tensor.shape
    return reshape(tensor, math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :]))


def select_indices(input: T, axis: int, indices: Indices) -> T:
    """Select elements along an axis by index, as index_select does, without checking the indices."""
    shape = input.shape
    rows = take_rows(as_three_axes(input, axis), indices)
    result: T = reshape(rows, (*shape[:axis], len(indices), *shape[axis + 1 :]))
    return result


# Scatter-add


def _infer_take_rows_backward(input: TensorBase, index: Any, size: int) -> Result:
    outer, count, inner = _check_three_axes("take_rows_backward", input.shape)
    indices = Indices.of(index)
    _check_range("take_rows_backward", indices, size)
    if len(indices) != count:
        raise ShapeError(
            f"[take_rows_backward] {len(indices)} indices do not fit an input of shape {input.shape}"
        )
    return (outer, size, inner), input.dtype


def _run_take_rows_backward(out: TensorBase, input: TensorBase, index: Any, size: int) -> None:
    if out.dtype.itemsize < 4:
        as_words(_run_take_rows_backward, out, [input], index, size)
        return
    x, indices = contiguous(input), Indices.of(index)
    on_device = indices.stays_on(x)
    if on_device is not None:
        _add_rows_on_device(out, x, on_device, size)
        return
    order, starts = indices.group_positions(size)
    counts = np.diff(starts)
    if counts.max(initial=0) > MAX_SEQUENTIAL_TERMS:
        pieces = -(-counts // MAX_SEQUENTIAL_TERMS)  # partial sums for each index
        # The partial sum that each row belongs to: those of smaller indices come first.
        rank = np.arange(len(order)) - np.repeat(starts[:-1], counts)
        piece = np.full(len(indices), -1, np.int32)
        piece[order] = np.repeat(np.cumsum(pieces) - pieces, counts) + rank // MAX_SEQUENTIAL_TERMS
        sums = take_rows_backward(x, Indices(piece), int(pieces.sum()))
        _run_take_rows_backward(out, sums, Indices(np.repeat(np.arange(size), pieces)), size)
        return
    plan_words = np.concatenate((starts + np.int32(size + 1), order)).astype(np.int32)
    plan = from_host(type(input).result_class, plan_words, input.device, copy=False)
    dtype, width = x.dtype.name, _summed_width(x)
    words = out.numel() // width
    push = TAKE_ROWS_BACKWARD_PUSH.pack(words, x.offset // width, size, x.shape[1], x.shape[2] // width)
    run(TAKE_ROWS_BACKWARD[dtype, width, False], strided_grid(words, WORKGROUP), push, x, plan, out)


def _add_rows_on_device(out: TensorBase, x: TensorBase, indices: TensorBase, size: int) -> None:
    """The sums of rows by indices that the host does not know, nor how many rows each sum has."""
    outer, count, inner = x.shape
    pairs = sorted_pairs(indices)
    plan = group_plan(pairs, size)
    dtype, width = x.dtype.name, _summed_width(x)
    words = out.numel() // width
    push = TAKE_ROWS_BACKWARD_PUSH.pack(words, x.offset // width, size, count, inner // width)
    grid = strided_grid(words, WORKGROUP)
    if count <= MAX_SEQUENTIAL_TERMS:
        run(TAKE_ROWS_BACKWARD[dtype, width, False], grid, push, x, plan, out)
        return
    chunk = MAX_SEQUENTIAL_TERMS
    chunks = -(-count // chunk)
    heads: TensorBase = empty(type(out).result_class, (outer, chunks, inner), out.dtype, out.device)
    head_words = heads.numel() // width
    head_push = TAKE_ROWS_HEADS_PUSH.pack(
        n=head_words,
        x_offset=x.offset // width,
        chunk=chunk,
        count=count,
        inner=inner // width,
        chunks=chunks,
    )
    run(TAKE_ROWS_HEADS[dtype, width], strided_grid(head_words, WORKGROUP), head_push, x, pairs, heads)
    push = HEADS_PUSH.after(push, chunk=chunk, chunks=chunks)
    run(TAKE_ROWS_BACKWARD[dtype, width, True], grid, push, x, plan, heads, out)


@export()
@op(
    infer=_infer_take_rows_backward,
    kernel=Kernel(
        _run_take_rows_backward,
        tuple(TAKE_ROWS_BACKWARD[dtype, width, False] for dtype, width in VALUES),
        SUMMED_DTYPES,
        halves="widened",
    ),
    examples=(
        example((3, 6, 5), index=(0, 6, 2, 2, -1, 2), size=7),
        example((1, 7, 1), index=(4, 4, 4, 4, 4, 4, 4), size=5),
        example((2, 0, 3), index=(), size=5),
        example((0, 2, 5), index=(0, 1), size=3),
        example((2, 5, 8), index=(0, 3, 2, -1, 2), size=5),
    ),
)
def take_rows_backward(input: Array, index: Sequence[int] | Indices, size: int) -> Array:
    """Gradient of :func:`take_rows`: adds each row to the row that its index names.

    Rows of one index are added in their order, so the result is the same in every run.

    Args:
        input: shape (outer, count, inner).
        index: `count` ints below `size`; rows with a negative index are left out.
        size: of the middle axis of the result.

    Returns:
        Shape (outer, size, inner).

    Raises:
        ShapeError: the input does not have three axes, or not `count` rows.
        ArgumentError: an index is out of range.

    Example:
        >>> import dl4all as dl
        >>> dl.ops.take_rows_backward(dl.tensor([[[1.0], [2.0], [4.0]]]), (1, 0, 1), 2).tolist()
        [[[2.0], [5.0]]]
    """
    order, starts = Indices.of(index).group_positions(size)
    sums = np.zeros((input.shape[0], size, input.shape[2]), input.dtype)
    filled = np.diff(starts) > 0  # reduceat takes an empty group for one of one element
    if filled.any() and sums.size:
        sums[:, filled] = np.add.reduceat(input[:, order], starts[:-1][filled], axis=1, dtype=input.dtype)
    return sums


take_rows.defgrad(lambda g, index, shapes: take_rows_backward(g, index, shapes[0][1]))
take_rows_backward.defgrad(lambda g, index: take_rows(g, index))


# Scatter


def _infer_put_rows(input: TensorBase, source: TensorBase, index: Any) -> Result:
    indices = Indices.of(index)
    if len(input.shape) != 2 or source.shape != (len(indices), input.shape[1]):
        raise ShapeError(
            "[put_rows] expected an input of shape (size, inner) and a source of shape "
            f"({len(indices)}, inner), got {input.shape} and {source.shape}"
        )
    if source.dtype != input.dtype:
        raise DTypeError(
            f"[put_rows] expected operands of one dtype, got {input.dtype} and {source.dtype}; "
            "convert with .to(dtype)"
        )
    _check_range("put_rows", indices, input.shape[0])
    return input.shape, input.dtype


def _run_put_rows(out: TensorBase, input: TensorBase, source: TensorBase, index: Any) -> None:
    if out.dtype.itemsize < 4:
        as_words(_run_put_rows, out, [input, source], index)
        return
    copy_into(out, input)
    write_rows(out, source, Indices.of(index).last_occurrences(input.shape[0]))


@kernel_function("put_rows")
def write_rows(target: TensorBase, source: TensorBase, indices: Indices) -> TensorBase:
    """Write rows to contiguous memory; on other devices than the CPU no index may occur twice.

    Returns:
        The target.

    Raises:
        NoKernel: rows of less than a word's elements do not fill words; nothing was written.
    """
    matrix, rows = target, broadcast_view(source, (len(indices), target.shape[-1]))
    if 0 in rows.shape:
        return target
    if rows.dtype != target.dtype:
        rows = primitives.cast(rows, target.dtype.name)
    if target.device.is_host:
        host_work("write_rows", _write_rows, [rows, indices.on(target)], [target], kernel=WRITE_ON_HOST)
        return target
    if target.dtype.itemsize < 4:
        words = _words_of_rows(target), _words_of_rows(contiguous(rows))
        if words[0] is None or words[1] is None:
            raise NoKernel("rows that begin within a word")
        target, rows = words
    push = PUT_ROWS_PUSH.pack(rows.numel(), rows.offset, *rows.strides, target.offset, rows.shape[1])
    code = PUT_ROWS[target.dtype.itemsize]
    run(code, strided_grid(rows.numel(), WORKGROUP), push, rows, indices.on(target), target)
    return matrix


def _write_rows(rows: Any, index: Any, target: Any) -> None:
    target[index[index >= 0]] = rows[index >= 0]


@export()
@op(
    infer=_infer_put_rows,
    kernel=Kernel(_run_put_rows, (PUT_ROWS[4],), MOVED_DTYPES, halves="moved"),
    examples=(
        example((7, 5), (3, 5), index=(6, 0, 3)),
        example((5, 3), (4, 3), index=(1, 4, 1, -1)),
        example((13, 1), (1, 1), index=(12,)),
        example((3, 5), (0, 5), index=()),
    ),
)
def put_rows(input: Array, source: Array, index: Sequence[int] | Indices) -> Array:
    """Replace rows by index; where an index occurs several times, the last row stays.

    Args:
        input: shape (size, inner), of any dtype.
        source: shape (count, inner).
        index: `count` ints below `size`; rows with a negative index are not written.

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
    indices = Indices.of(index).last_occurrences(len(input)).array
    result = np.array(input)
    result[indices[indices >= 0]] = source[indices >= 0]
    return result


def _put_rows_input_gradient(g: Any, index: Any) -> Any:
    """The result's gradient with zeros in the rows that were replaced."""
    zero = from_host(type(g).result_class, np.zeros((1, 1), g.dtype), g.device, copy=False)
    return put_rows(g, expand(zero, (len(Indices.of(index)), g.shape[1])), index)


def _put_rows_source_gradient(g: Any, index: Any) -> Any:
    """The result's gradient at the rows that stayed."""
    rows = take_rows(reshape(g, 1, *g.shape), Indices.of(index).last_occurrences(g.shape[0]))
    return reshape(rows, rows.shape[1:])


put_rows.defgrad(_put_rows_input_gradient, _put_rows_source_gradient)
