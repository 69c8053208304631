"""Reading and adding elements by index: gather, scatter, index_select, take and masked_select.

Indices are integer tensors, arrays or lists. Sums are formed in a fixed order, so results and gradients are
the same in every run.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np

from dl4all.errors import DTypeError, ShapeError
from dl4all.ops.core import strides, tape
from dl4all.ops.core.arguments.call_forms import alone
from dl4all.ops.core.dtypes import kind_of
from dl4all.ops.core.exports import export
from dl4all.ops.core.kernels.launch import NoKernel
from dl4all.ops.core.limits import check_shape
from dl4all.ops.core.tensor_base import Array, Scalar, Shape, TensorBase, contiguous_strides, from_host
from dl4all.ops.core.vmap_hook import reads
from dl4all.ops.elementwise.arithmetic import add, mul
from dl4all.ops.elementwise.logic import where
from dl4all.ops.indexing import device_indices
from dl4all.ops.indexing.combined_rows import combined_rows, combines_on_host
from dl4all.ops.indexing.host_selection import select
from dl4all.ops.indexing.indices import (
    Indices,
    NDArray,
    checked_indices,
    flatten_indices,
    indices_into,
    integer_indices,
    out_of_range,
)
from dl4all.ops.indexing.rows import (
    as_three_axes,
    each_once,
    put_rows,
    select_indices,
    steps_of,
    take_rows,
    take_rows_backward,
)
from dl4all.ops.memory.conversion import cast
from dl4all.ops.memory.copy import fill_with, new_like
from dl4all.ops.memory.parts import narrow
from dl4all.ops.memory.views import contiguous, expand, flatten, reshape
from dl4all.ops.sorting.compaction import coordinates, positions
from dl4all.ops.sorting.placement import by_kernels_or_host
from dl4all.ops.sorting.selection import select_in_rows

T = TypeVar("T", bound=TensorBase)


@export("dl", "Tensor", out=True)
@reads("index")
def index_select(input: T, dim: int, index: Array | NDArray | Sequence[int]) -> T:
    """Select elements along axis `dim` by index, in the order of the indices.

    Args:
        input: a tensor of any dtype.
        dim: the axis.
        index: ints from 0 on.

    Raises:
        ArgumentError: an index is out of range.
        DTypeError: the indices are no integers.

    Example:
        >>> import dl4all as dl
        >>> dl.index_select(dl.tensor([[1.0, 2.0], [3.0, 4.0]]), 1, dl.tensor([1, 1, 0])).tolist()
        [[2.0, 2.0, 1.0], [4.0, 4.0, 3.0]]
    """
    if not input.shape:
        return reshape(index_select(reshape(input, 1), dim, index), ())
    axis = strides.axis("index_select", dim, len(input.shape))
    if isinstance(index, TensorBase) and len(index.shape) == 1:
        error = partial(out_of_range, "index_select", input.shape[axis])
        result: T | None = select("index_select", input, index, axis, error)
        if result is not None:
            return result
    indices, _ = indices_into("index_select", index, input.shape[axis], input)
    source = each_once(input, (axis,))
    if source is not input:
        indices = Indices(np.zeros(len(indices), np.int32))
    return select_indices(source, axis, indices)


@export("dl", "Tensor", "Tensor_", out=True)
@reads("index")
def index_add(
    input: T, dim: int, index: Array | NDArray | Sequence[int], source: T, *, alpha: float = 1
) -> T:
    """Add the elements of `source` along axis `dim` to the elements of the input that an index names.

    Args:
        input: a tensor of floats.
        dim: the axis.
        index: an int for each element of `source` along `dim`; the same one may occur several times.
        source: of the input's shape but for `dim`.
        alpha: factor for the source.

    Raises:
        ArgumentError: an index is out of range.
        ShapeError: the shapes do not fit.

    Example:
        >>> import dl4all as dl
        >>> x = dl.zeros(3)
        >>> dl.index_add(x, 0, dl.tensor([0, 2, 2]), dl.tensor([1.0, 2.0, 3.0])).tolist()
        [1.0, 0.0, 5.0]
    """
    if not input.shape:
        return reshape(index_add(reshape(input, 1), dim, index, reshape(source, 1), alpha=alpha), ())
    axis = strides.axis("index_add", dim, len(input.shape))
    indices, _ = indices_into("index_add", index, input.shape[axis], input)
    expected = (*input.shape[:axis], len(indices), *input.shape[axis + 1 :])
    if source.shape != expected:
        raise ShapeError(f"[index_add] the source must have shape {expected}, got {source.shape}")
    if alpha == 1 and combines_on_host(input, source, indices):
        outer, inner = math.prod(input.shape[:axis]), math.prod(input.shape[axis + 1 :])
        return combined_rows("sum", input, source, indices, (outer, input.shape[axis], inner))  # type: ignore[no-any-return]
    rows = as_three_axes(source, axis)
    sums = reshape(take_rows_backward(rows, indices, input.shape[axis]), input.shape)
    return add(input, sums if alpha == 1 else mul(sums, alpha))  # type: ignore[no-any-return]


def indices_along(
    name: str, input: TensorBase, axis: int, index: Any, steps: Shape | None = None
) -> tuple[Indices, Shape]:
    """Indices along an axis as indices into the flattened tensor, and the index's shape.

    Args:
        name: of the op, for errors.
        input: the tensor.
        axis: the one that they are indices into.
        index: of as many axes as the tensor.
        steps: what an index along each axis counts, where that is not the flattened tensor's.

    Raises:
        ShapeError, ArgumentError, DTypeError
    """
    shape = input.shape
    steps = contiguous_strides(shape) if steps is None else steps
    if device_indices.stays(index, input) and sum(map(operator.mul, shape, steps)) < device_indices.MOST:
        _check_fit(name, shape, axis, index.shape)
        error = partial(out_of_range, name, shape[axis])
        grid = tuple(0 if i == axis else step for i, step in enumerate(steps))
        tensor = device_indices.checked(index, shape[axis], error, scale=steps[axis], grid=grid)
        if tensor is not None:
            return Indices.of_checked(tensor), index.shape
    array = checked_indices(name, index, shape[axis])
    _check_fit(name, shape, axis, array.shape)
    flat = np.zeros(array.shape, np.int64)
    for i, step in enumerate(steps):
        line = (-1,) + (1,) * (len(shape) - i - 1)
        flat += step * (array if i == axis else np.arange(array.shape[i]).reshape(line))
    return Indices(flat), array.shape


def _check_fit(name: str, shape: Shape, axis: int, index_shape: Shape) -> None:
    """
    Raises:
        ShapeError: an index does not fit along an axis of a shape.
    """
    if len(index_shape) != len(shape) or any(
        count > size for i, (count, size) in enumerate(zip(index_shape, shape, strict=True)) if i != axis
    ):
        raise ShapeError(
            f"[{name}] an index of shape {index_shape} does not fit shape {shape}: it must have as many "
            f"axes, and be no larger but along axis {axis}"
        )


@export("dl", "Tensor", out=True)
@reads("index")
def gather(input: T, dim: int, index: Array | NDArray | Sequence[object], *, sparse_grad: bool = False) -> T:
    """Select one element along axis `dim` for each index.

    Args:
        input: a tensor of any dtype.
        dim: the axis.
        index: ints, of as many axes as the input and no larger but along `dim`.
        sparse_grad: has no effect: the gradient is dense.

    Returns:
        The index's shape: ``result[i, j] = input[index[i, j], j]`` for two axes and ``dim=0``.

    Raises:
        ArgumentError: an index is out of range.
        ShapeError: the index has another number of axes, or is too large.

    Example:
        >>> import dl4all as dl
        >>> dl.gather(dl.tensor([[1.0, 2.0], [3.0, 4.0]]), 1, dl.tensor([[0], [1]])).tolist()
        [[1.0], [4.0]]
    """
    if not input.shape:
        shape = index.shape if isinstance(index, TensorBase) else np.asarray(index).shape
        return reshape(gather(reshape(input, 1), dim, with_an_axis("gather", index)), shape)
    if isinstance(index, TensorBase) and 0 in index.shape:
        strides.axis("gather", dim, len(input.shape))
        return reshape(narrow(flatten(input), 0, 0, 0), index.shape)
    axis = strides.axis("gather", dim, len(input.shape))
    if isinstance(index, TensorBase):
        _check_fit("gather", input.shape, axis, index.shape)
        error = partial(out_of_range, "gather", input.shape[axis])
        selected: T | None = select("gather", input, index, axis, error, along=True)
        if selected is not None:
            return selected
    source = each_once(input, range(len(input.shape)))
    flat, shape = indices_along("gather", input, axis, index, steps_of(source.shape, input.shape))
    result: T = reshape(take_rows(reshape(source, 1, source.numel(), 1), flat), shape)
    return result


def with_an_axis(name: str, index: Any) -> Any:
    """An index of no axis as one of one element."""
    if isinstance(index, TensorBase) and not index.shape:
        return index.strided_view((1,), (1,), index.offset)
    return np.atleast_1d(integer_indices(name, index))


@reads("index")
def scatter(input: T, dim: int, index: Array | NDArray | Sequence[object], src: Array | Scalar) -> T:
    """Replace one element along axis `dim` for each index.

    Args:
        input: a tensor of any dtype.
        dim: the axis.
        index: ints, as for :func:`gather`; where several name the same element, the last one counts.
        src: a tensor at least as large as the index, or a number.

    Raises:
        ArgumentError, ShapeError: as for :func:`gather`.

    Example:
        >>> import dl4all as dl
        >>> dl.scatter(dl.zeros(2, 3), 1, dl.tensor([[2], [0]]), 5.0).tolist()
        [[0.0, 0.0, 5.0], [5.0, 0.0, 0.0]]
    """
    if not input.shape:
        src = reshape(src, -1) if isinstance(src, TensorBase) else src
        return reshape(scatter(reshape(input, 1), dim, with_an_axis("scatter", index), src), ())
    axis = strides.axis("scatter", dim, len(input.shape))
    flat, shape = indices_along("scatter", input, axis, index)
    rows = source_column("scatter", input, src, shape)
    result: T = reshape(put_rows(reshape(input, input.numel(), 1), rows, flat), input.shape)
    return result


def source_column(name: str, input: T, src: Any, shape: Shape) -> T:
    """The part of `src` that an index of `shape` uses, as a matrix with one column.

    Raises:
        ShapeError, DTypeError
    """
    count = math.prod(shape)
    if not isinstance(src, TensorBase):
        return expanded_number(input, src, (count, 1), name)
    column: T = reshape(source_part(name, input, src, shape), count, 1)
    return column


def source_part(name: str, input: TensorBase, src: Any, shape: Shape) -> Any:
    """The part of `src` that an index of `shape` uses.

    Raises:
        ShapeError, DTypeError
    """
    if len(src.shape) != len(shape) or any(a < b for a, b in zip(src.shape, shape, strict=True)):
        raise ShapeError(f"[{name}] the source must be at least of shape {shape}, got {src.shape}")
    if src.dtype != input.dtype:
        raise DTypeError(f"[{name}] the source must be of {input.dtype}, got {src.dtype}")
    part = src
    for axis, size in enumerate(shape):
        if src.shape[axis] != size:
            part = narrow(part, axis, 0, size)
    return part


def expanded_number(like: T, value: Any, shape: Shape, name: str = "fill_") -> T:
    """A tensor of `shape` whose elements are all `value`, stored once."""
    check_shape(name, shape)
    element: T = new_like(like, (1,) * len(shape))
    fill_with(element, value, name)
    return expand(element, shape)


@export("dl", "Tensor", "Tensor_", out=True, autocast="widest")
@reads("index")
def scatter_add(input: T, dim: int, index: Array | NDArray | Sequence[object], src: T) -> T:
    """Add to one element along axis `dim` for each index.

    Args:
        input: a tensor of floats.
        dim: the axis.
        index: ints, as for :func:`gather`; terms for the same element are added in their order.
        src: a tensor at least as large as the index.

    Raises:
        ArgumentError, ShapeError: as for :func:`gather`.

    Example:
        >>> import dl4all as dl
        >>> dl.scatter_add(dl.zeros(3), 0, dl.tensor([1, 1]), dl.tensor([2.0, 5.0])).tolist()
        [0.0, 7.0, 0.0]
    """
    if not input.shape:
        places = with_an_axis("scatter_add", index)
        return reshape(scatter_add(reshape(input, 1), dim, places, reshape(src, -1)), ())
    axis = strides.axis("scatter_add", dim, len(input.shape))
    flat, shape = indices_along("scatter_add", input, axis, index)
    if combines_on_host(input, src, flat):
        part = source_part("scatter_add", input, src, shape)
        return combined_rows("sum", input, part, flat, (1, input.numel(), 1))  # type: ignore[no-any-return]
    rows = reshape(source_column("scatter_add", input, src, shape), 1, len(flat), 1)
    return add(input, reshape(take_rows_backward(rows, flat, input.numel()), input.shape))  # type: ignore[no-any-return]


@export("dl", "Tensor", out=True)
@reads("index")
def take(input: T, index: Array | NDArray | Sequence[object]) -> T:
    """Select elements of the flattened tensor by index; the result has the index's shape.

    Raises:
        ArgumentError: an index is out of range.

    Example:
        >>> import dl4all as dl
        >>> dl.take(dl.tensor([[1, 2], [3, 4]]), dl.tensor([0, 3])).tolist()
        [1, 4]
    """
    source = each_once(input, range(len(input.shape)))
    if source is not input:  # by the coordinates of the few elements that there are
        places = checked_indices("take", index, input.numel(), negative=True)
        shape, steps = places.shape, steps_of(source.shape, input.shape)
        places = flatten_indices("take", np.unravel_index(places, input.shape), input.shape, steps)
        return reshape(select_indices(flatten(source), 0, Indices(places)), shape)
    flat, shape = indices_into("take", index, input.numel(), input, negative=True)
    return reshape(select_indices(flatten(input), 0, flat), shape)


def _counted_from_the_front(indices: Any, size: int) -> Any:
    """Indices of an axis, an array or a tensor, with the axis's size added to those below 0."""
    if kind_of(indices.dtype) == "u":
        return indices
    if not isinstance(indices, TensorBase):
        indices = indices.astype(np.int64)
        return np.where(indices < 0, indices + size, indices)
    if indices.dtype.itemsize < 4:  # which the size may not fit into
        indices = cast(indices, "int32")
    return where(indices < 0, indices + size, indices)


@export("dl", "Tensor", out=True)
@reads("indices")
def take_along_dim(input: T, indices: Array | NDArray | Sequence[object], dim: int | None = None) -> T:
    """:func:`gather` with the other axes broadcast; without `dim`, from the flattened tensor.

    Negative indices count from the end.

    Raises:
        ArgumentError, ShapeError: as for :func:`gather`.
    """
    if not device_indices.stays(indices, input):
        indices = integer_indices("take_along_dim", indices)
    if dim is None:
        return take(input, reshape(indices, -1) if isinstance(indices, TensorBase) else indices.reshape(-1))
    axis = strides.axis("take_along_dim", dim, len(input.shape))
    indices = _counted_from_the_front(indices, input.shape[axis] if input.shape else 1)
    if len(indices.shape) != len(input.shape):
        raise ShapeError(
            f"[take_along_dim] expected as many axes as {input.shape} has, got indices of shape "
            f"{indices.shape}"
        )
    try:
        shape = np.broadcast_shapes(
            (*input.shape[:axis], 1, *input.shape[axis + 1 :]),
            (*indices.shape[:axis], 1, *indices.shape[axis + 1 :]),
        )
    except ValueError:
        raise ShapeError(
            f"[take_along_dim] shapes {input.shape} and {indices.shape} do not broadcast but for axis {axis}"
        ) from None
    index_shape = (*shape[:axis], indices.shape[axis], *shape[axis + 1 :])
    index: Any
    if isinstance(indices, TensorBase):
        index = indices.strided_view(
            *strides.expanded(index_shape, indices.shape, indices.strides), indices.offset
        )
    else:
        index = np.broadcast_to(indices, index_shape)
    return gather(expand(input, (*shape[:axis], -1, *shape[axis + 1 :])), axis, index)


def bool_mask(name: str, mask: Any) -> NDArray:
    """A mask as an array of bools on the host.

    Raises:
        DTypeError: the mask is not of bools.
    """
    array = mask.on_host() if isinstance(mask, TensorBase) else np.asarray(mask)
    if array.dtype != np.bool_:
        raise DTypeError(f"[{name}] expected a mask of bool, got {array.dtype}; use .to('bool')")
    return array


@export("dl", "Tensor", out=True)
@reads("mask")
def masked_select(input: T, mask: Array | NDArray | Sequence[object]) -> T:
    """Select the elements where a mask of bools, broadcast, is true, in row-major order.

    Raises:
        DTypeError: the mask is not of bools.
        ShapeError: the shapes do not broadcast.

    Example:
        >>> import dl4all as dl
        >>> dl.masked_select(dl.tensor([1.0, 2.0, 3.0]), dl.tensor([True, False, True])).tolist()
        [1.0, 3.0]
    """
    given = mask if isinstance(mask, TensorBase) else np.asarray(mask)
    if given.dtype != np.bool_:
        bool_mask("masked_select", mask)  # raises
    try:
        shape = np.broadcast_shapes(input.shape, given.shape)
    except ValueError:
        raise ShapeError(f"[masked_select] shapes {input.shape} and {given.shape} do not broadcast") from None

    def kernels() -> T:
        if not (isinstance(mask, TensorBase) and mask.device is input.device):
            raise NoKernel("the mask is no tensor of its device")
        found = positions(contiguous(expand(mask, shape)))
        row = reshape(expand(input, shape), 1, math.prod(shape))
        result: T = reshape(select_in_rows(row, found), found.shape[1])
        return result

    def host() -> T:
        indices = np.flatnonzero(np.broadcast_to(bool_mask("masked_select", mask), shape))
        return select_indices(flatten(expand(input, shape)), 0, Indices(indices))

    return by_kernels_or_host("masked_select", input, kernels, host, waits=True)


@export("dl", "Tensor", out=True)
@reads("input")
def nonzero(input: T, as_tuple: bool = False) -> Array:
    """Indices of the elements that are not zero.

    Returns:
        An int64 tensor of shape (count, axes), or with `as_tuple` a tuple with a tensor for each axis.

    Example:
        >>> import dl4all as dl
        >>> dl.nonzero(dl.tensor([[0.0, 1.0], [2.0, 0.0]])).tolist()
        [[0, 1], [1, 0]]
    """

    def kernels() -> Array:
        places = positions(contiguous(tape.alias(input)))
        shape = input.shape if input.shape or not as_tuple else (1,)
        found = coordinates(places, shape, by_axis=as_tuple)
        if not as_tuple:
            return found
        return tuple(reshape(narrow(found, 0, axis, 1), places.shape[1]) for axis in range(len(shape)))

    def host() -> Array:
        array = input.on_host()
        result_class = type(input).result_class
        if as_tuple:
            axes = np.nonzero(array) if array.ndim else (np.zeros(int(bool(array)), np.int64),)
            return tuple(
                from_host(result_class, axis.astype(np.int64), input.device, copy=False) for axis in axes
            )
        return from_host(result_class, np.argwhere(array).astype(np.int64), input.device, copy=False)

    return by_kernels_or_host("nonzero", input, kernels, host, waits=True)


where.forms += (alone(partial(nonzero, as_tuple=True)),)
