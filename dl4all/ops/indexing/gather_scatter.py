"""Taking elements by indices, and putting them back by indices.

Indices are integer tensors, arrays or lists. What is added up is added in a fixed order, so that results
and gradients are the same in every run.
"""

from __future__ import annotations

import math
from typing import Any, TypeVar

import numpy as np

from dl4all.errors import ArgumentError, DTypeError, ShapeError
from dl4all.ops.core import strides, tape
from dl4all.ops.core.exports import export
from dl4all.ops.core.op import REGISTRY
from dl4all.ops.core.tensor_base import Shape, TensorBase, from_host
from dl4all.ops.core.vmap_hook import reads
from dl4all.ops.elementwise.arithmetic import add
from dl4all.ops.indexing.concatenation import picked
from dl4all.ops.indexing.indices import Indices, NDArray, checked, integers
from dl4all.ops.indexing.rows import put_rows, take_rows, take_rows_backward
from dl4all.ops.memory.copy import fill_with, new_like
from dl4all.ops.memory.views import expand, flatten, narrow, reshape

T = TypeVar("T", bound=TensorBase)


@export("dl", "Tensor")
@reads("index")
def index_select(input: T, dim: int, index: Any) -> T:
    """The places of axis `dim` that an index names, in its order.

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
    place = strides.axis("index_select", dim, len(input.shape))
    return picked(input, place, Indices(checked("index_select", index, input.shape[place])))


@export("dl", "Tensor", "Tensor_")
@reads("index")
def index_add(input: T, dim: int, index: Any, source: T, *, alpha: float = 1) -> T:
    """The input with places of `source` along axis `dim` added to those that an index names.

    Args:
        input: a tensor of floats.
        dim: the axis.
        index: an int for each place of `source`; the same one may come several times.
        source: of the input's shape but for `dim`.
        alpha: what the source is multiplied by.

    Raises:
        ArgumentError: an index is out of range.
        ShapeError: the shapes do not fit.
    """
    place = strides.axis("index_add", dim, len(input.shape))
    places = Indices(checked("index_add", index, input.shape[place]))
    wanted = (*input.shape[:place], len(places), *input.shape[place + 1 :])
    if source.shape != wanted:
        raise ShapeError(f"[index_add] the source must have shape {wanted}, got {source.shape}")
    sums = take_rows_backward(_three(source, place), places, input.shape[place])
    return add(input, _times(reshape(sums, input.shape), alpha))  # type: ignore[no-any-return]


def _times(tensor: T, alpha: float) -> T:
    return tensor if alpha == 1 else REGISTRY["mul"](tensor, alpha)


def _three(tensor: T, place: int) -> T:
    shape = tensor.shape
    return reshape(tensor, math.prod(shape[:place]), shape[place], math.prod(shape[place + 1 :]))


def _along(name: str, shape: Shape, place: int, index: Any) -> NDArray:
    """Indices along an axis as indices into all elements.

    Raises:
        ShapeError, ArgumentError, DTypeError
    """
    array = checked(name, index, shape[place])
    if array.ndim != len(shape) or any(
        wanted > there for i, (wanted, there) in enumerate(zip(array.shape, shape, strict=True)) if i != place
    ):
        raise ShapeError(
            f"[{name}] an index of shape {array.shape} does not fit shape {shape}: it must have as many "
            f"axes, and be no larger but along axis {place}"
        )
    flat = np.zeros(array.shape, np.int64)
    for axis, size in enumerate(shape):
        line = (-1,) + (1,) * (len(shape) - axis - 1)
        flat = flat * size + (array if axis == place else np.arange(array.shape[axis]).reshape(line))
    return flat


@export("dl", "Tensor")
@reads("index")
def gather(input: T, dim: int, index: Any) -> T:
    """Each element from the place along axis `dim` that an index names for it.

    Args:
        input: a tensor of any dtype.
        dim: the axis.
        index: ints, of as many axes as the input and no larger but along `dim`.

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
        return reshape(gather(reshape(input, 1), 0, np.atleast_1d(integers("gather", index))), ())
    place = strides.axis("gather", dim, len(input.shape))
    flat = _along("gather", input.shape, place, index)
    made: T = reshape(take_rows(reshape(input, 1, input.numel(), 1), Indices(flat)), flat.shape)
    return made


@export("dl", "Tensor", "Tensor_")
@reads("index")
def scatter(input: T, dim: int, index: Any, src: Any) -> T:
    """The input with elements put to the places along axis `dim` that an index names.

    Args:
        input: a tensor of any dtype.
        dim: the axis.
        index: ints, as for :func:`gather`; of several for one place the last counts.
        src: a tensor at least as large as the index, or a number.

    Raises:
        ArgumentError, ShapeError: as for :func:`gather`.

    Example:
        >>> import dl4all as dl
        >>> dl.scatter(dl.zeros(2, 3), 1, dl.tensor([[2], [0]]), 5.0).tolist()
        [[0.0, 0.0, 5.0], [5.0, 0.0, 0.0]]
    """
    place = strides.axis("scatter", dim, len(input.shape))
    flat = _along("scatter", input.shape, place, index)
    rows = _source("scatter", input, src, flat.shape)
    made: T = reshape(put_rows(reshape(input, input.numel(), 1), rows, Indices(flat)), input.shape)
    return made


def _source(name: str, input: T, src: Any, shape: Shape) -> T:
    """What goes to each place: elements in one column."""
    count = math.prod(shape)
    if not isinstance(src, TensorBase):
        return number(input, src, (count, 1))
    if len(src.shape) != len(shape) or any(a < b for a, b in zip(src.shape, shape, strict=True)):
        raise ShapeError(f"[{name}] the source must be at least of shape {shape}, got {src.shape}")
    if src.dtype != input.dtype:
        raise DTypeError(f"[{name}] the source must be of {input.dtype}, got {src.dtype}")
    part: Any = src
    for axis, size in enumerate(shape):
        if src.shape[axis] != size:
            part = narrow(part, axis, 0, size)
    made: T = reshape(part, count, 1)
    return made


def number(like: T, value: Any, shape: Shape) -> T:
    """A number as a tensor of some shape that takes the memory of one element."""
    one: T = new_like(like, (1,) * len(shape))
    fill_with(one, value)
    return expand(one, shape)


@export("dl", "Tensor", "Tensor_")
@reads("index")
def scatter_add(input: T, dim: int, index: Any, src: T) -> T:
    """The input with elements added to the places along axis `dim` that an index names.

    Args:
        input: a tensor of floats.
        dim: the axis.
        index: ints, as for :func:`gather`; several for one place are added up, in their order.
        src: a tensor at least as large as the index.

    Raises:
        ArgumentError, ShapeError: as for :func:`gather`.

    Example:
        >>> import dl4all as dl
        >>> dl.scatter_add(dl.zeros(3), 0, dl.tensor([1, 1]), dl.tensor([2.0, 5.0])).tolist()
        [0.0, 7.0, 0.0]
    """
    place = strides.axis("scatter_add", dim, len(input.shape))
    flat = _along("scatter_add", input.shape, place, index)
    rows = reshape(_source("scatter_add", input, src, flat.shape), 1, flat.size, 1)
    return add(input, reshape(take_rows_backward(rows, Indices(flat), input.numel()), input.shape))  # type: ignore[no-any-return]


@export("dl", "Tensor")
@reads("index")
def take(input: T, index: Any) -> T:
    """Elements by their number in row-major order, in the index's shape.

    Raises:
        ArgumentError: an index is out of range.
    """
    flat = checked("take", index, input.numel(), negative=True)
    return reshape(picked(flatten(input), 0, Indices(flat)), flat.shape)


@export("dl", "Tensor")
@reads("indices")
def take_along_dim(input: T, indices: Any, dim: int | None = None) -> T:
    """:func:`gather` with the other axes broadcast; without `dim`, elements by their number.

    Raises:
        ArgumentError, ShapeError: as for :func:`gather`.
    """
    if dim is None:
        return take(input, np.asarray(integers("take_along_dim", indices)).reshape(-1))
    array = integers("take_along_dim", indices)
    place = strides.axis("take_along_dim", dim, len(input.shape))
    if array.ndim != len(input.shape):
        raise ShapeError(
            f"[take_along_dim] expected as many axes as {input.shape} has, got indices of shape {array.shape}"
        )
    try:
        others = np.broadcast_shapes(
            (*input.shape[:place], 1, *input.shape[place + 1 :]),
            (*array.shape[:place], 1, *array.shape[place + 1 :]),
        )
    except ValueError:
        raise ShapeError(
            f"[take_along_dim] shapes {input.shape} and {array.shape} do not broadcast but for axis {place}"
        ) from None
    wide = np.broadcast_to(array, (*others[:place], array.shape[place], *others[place + 1 :]))
    return gather(expand(input, (*others[:place], -1, *others[place + 1 :])), place, wide)


def mask_of(name: str, mask: Any) -> NDArray:
    """
    Raises:
        DTypeError: it is not of bools.
    """
    array = mask.on_host() if isinstance(mask, TensorBase) else np.asarray(mask)
    if array.dtype != np.bool_:
        raise DTypeError(f"[{name}] expected a mask of bool, got {array.dtype}; use .to('bool')")
    return array


@export("dl", "Tensor")
@reads("mask")
def masked_select(input: T, mask: Any) -> T:
    """The elements where a mask of bools, broadcast, is true, in row-major order.

    Raises:
        DTypeError: the mask is not of bools.
        ShapeError: the shapes do not broadcast.

    Example:
        >>> import dl4all as dl
        >>> dl.masked_select(dl.tensor([1.0, 2.0, 3.0]), dl.tensor([True, False, True])).tolist()
        [1.0, 3.0]
    """
    wanted = mask_of("masked_select", mask)
    try:
        shape = np.broadcast_shapes(input.shape, wanted.shape)
    except ValueError:
        raise ShapeError(
            f"[masked_select] shapes {input.shape} and {wanted.shape} do not broadcast"
        ) from None
    places = np.flatnonzero(np.broadcast_to(wanted, shape))
    return picked(flatten(expand(input, shape)), 0, Indices(places))


@export("dl", "Tensor")
@reads("input")
def nonzero(input: T, as_tuple: bool = False) -> Any:
    """Where elements are not zero: int64 of shape (count, axes), or a tuple with one tensor for each axis.

    Example:
        >>> import dl4all as dl
        >>> dl.nonzero(dl.tensor([[0.0, 1.0], [2.0, 0.0]])).tolist()
        [[0, 1], [1, 0]]
    """
    array = input.on_host()
    found = np.nonzero(array) if array.ndim else (np.zeros(int(bool(array)), np.int64),)
    made = type(input).result_class
    if as_tuple:
        return tuple(from_host(made, axis.astype(np.int64), input.device, copy=False) for axis in found)
    table = np.argwhere(array).astype(np.int64)
    return from_host(made, table, input.device, copy=False)


@export("F")
@reads("input")
def embedding(input: Any, weight: T, padding_idx: int | None = None) -> T:
    """Rows of a table by their number.

    Args:
        input: ints of any shape, from 0 on.
        weight: the table, shape (rows, columns).
        padding_idx: a row that gets no gradient.

    Returns:
        The input's shape with an axis of `columns` behind it.

    Raises:
        ArgumentError: a number is out of range.
        ShapeError: the table is no matrix.

    Example:
        >>> import dl4all as dl
        >>> table = dl.tensor([[1.0, 2.0], [3.0, 4.0]])
        >>> dl.nn.functional.embedding(dl.tensor([1, 0, 1]), table).tolist()
        [[3.0, 4.0], [1.0, 2.0], [3.0, 4.0]]
    """
    if len(weight.shape) != 2:
        raise ShapeError(f"[embedding] expected a table of shape (rows, columns), got {weight.shape}")
    rows, columns = weight.shape
    if padding_idx is not None and not -rows <= padding_idx < rows:
        raise ArgumentError(f"[embedding] padding_idx {padding_idx} is out of range for {rows} rows")
    numbers = checked("embedding", input, rows)
    places = Indices(numbers)
    source = tape.alias(weight)
    taken: T = take_rows(reshape(source, 1, rows, columns), places)
    made: T = reshape(taken, (*numbers.shape, columns))
    if padding_idx is None:
        counted = places
    else:
        counted = Indices(np.where(places.array == padding_idx % rows, -1, places.array))

    def backward(grads: Any, saved: Any, needs: Any) -> list[Any]:
        g = reshape(grads[0], 1, len(counted), columns)
        return [reshape(take_rows_backward(g, counted, rows), rows, columns)]

    tape.add_node("embedding", [weight], [made], backward)
    return made


@export("F")
@reads("input")
def one_hot(input: Any, num_classes: int = -1) -> Any:
    """A 1 at the place that each int names, 0 elsewhere, along a new last axis; int64.

    Args:
        input: a tensor of ints from 0 on.
        num_classes: the size of that axis; -1 takes what the largest int needs.

    Raises:
        ArgumentError: an int is out of range.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.functional.one_hot(dl.tensor([1, 0]), 3).tolist()
        [[0, 1, 0], [1, 0, 0]]
    """
    numbers = integers("one_hot", input)
    if num_classes == -1:
        if numbers.size == 0:
            raise ArgumentError("[one_hot] num_classes must be given for a tensor of no elements")
        num_classes = int(numbers.max()) + 1
    if num_classes < 1:
        raise ArgumentError(f"[one_hot] num_classes must be positive, got {num_classes}")
    numbers = checked("one_hot", numbers, num_classes)
    table = (numbers[..., None] == np.arange(num_classes)).astype(np.int64)
    return from_host(type(input).result_class, table, input.device, copy=False)
