"""Putting elements to places that are named: whole lines, single elements, what a mask or a view shows."""

from __future__ import annotations

import math
from typing import Any, TypeVar

import numpy as np

from dl4all.errors import ArgumentError, DTypeError, ShapeError
from dl4all.ops.core import strides, tape
from dl4all.ops.core.exports import export
from dl4all.ops.core.tensor_base import Shape, TensorBase, contiguous_strides, from_host
from dl4all.ops.core.vmap_hook import reads
from dl4all.ops.elementwise.arithmetic import add, clone, true_divide
from dl4all.ops.elementwise.logic import where
from dl4all.ops.indexing import advanced_indexing
from dl4all.ops.indexing.assignment import setitem
from dl4all.ops.indexing.concatenation import stack
from dl4all.ops.indexing.gather_scatter import bool_mask, expanded_number, scatter_add
from dl4all.ops.indexing.indices import (
    Indices,
    NDArray,
    checked_indices,
    flatten_indices,
    integer_indices,
    untracked_view,
)
from dl4all.ops.indexing.rows import put_rows, take_rows, take_rows_backward
from dl4all.ops.memory.conversion import cast
from dl4all.ops.memory.views import expand, flatten, movedim, narrow, permute, reshape
from dl4all.ops.reduce.extrema import amax, amin

T = TypeVar("T", bound=TensorBase)
REDUCES = ("sum", "prod", "mean", "amax", "amin")


# Lines along an axis


@export("dl", "Tensor", "Tensor_")
@reads("index")
def index_copy(input: T, dim: int, index: Any, source: T) -> T:
    """The input with places of `source` along axis `dim` at those that an index names.

    Args:
        input: a tensor of any dtype.
        dim: the axis.
        index: an int for each place of `source`; of several for one place the last counts.
        source: of the input's shape but for `dim`, and of its dtype.

    Raises:
        ArgumentError: an index is out of range.
        ShapeError, DTypeError: the source does not fit.

    Example:
        >>> import dl4all as dl
        >>> dl.index_copy(dl.zeros(3), 0, dl.tensor([2, 0]), dl.tensor([5.0, 6.0])).tolist()
        [6.0, 0.0, 5.0]
    """
    place = strides.axis("index_copy", dim, len(input.shape))
    places = Indices(checked_indices("index_copy", index, input.shape[place]))
    wanted = (*input.shape[:place], len(places), *input.shape[place + 1 :])
    if source.shape != wanted:
        raise ShapeError(f"[index_copy] the source must have shape {wanted}, got {source.shape}")
    if source.dtype != input.dtype:
        raise DTypeError(f"[index_copy] the source must be of {input.dtype}, got {source.dtype}")
    return _with_lines(input, place, places, source)


def _with_lines(input: T, place: int, places: Indices, source: T) -> T:
    """With other lines along an axis."""
    if 0 in source.shape:
        return clone(input)  # type: ignore[no-any-return]
    front: Any = movedim(input, place, 0)
    inner = math.prod(front.shape[1:])
    rows = reshape(movedim(source, place, 0), len(places), inner)
    made = put_rows(reshape(front, front.shape[0], inner), rows, places)
    return movedim(reshape(made, front.shape), 0, place)  # type: ignore[no-any-return]


@export("dl", "Tensor", "Tensor_")
@reads("index")
def index_fill(input: T, dim: int, index: Any, value: Any) -> T:
    """The input with one number at the places along axis `dim` that an index names.

    Args:
        input: a tensor of any dtype.
        dim: the axis.
        index: ints.
        value: a number, or a tensor without axes.

    Raises:
        ArgumentError: an index is out of range.
        ShapeError: the value has axes.

    Example:
        >>> import dl4all as dl
        >>> dl.index_fill(dl.zeros(3), 0, dl.tensor([2, 0]), 5.0).tolist()
        [5.0, 0.0, 5.0]
    """
    place = strides.axis("index_fill", dim, len(input.shape))
    places = Indices(checked_indices("index_fill", index, input.shape[place], negative=True))
    shape = (*input.shape[:place], len(places), *input.shape[place + 1 :])
    return _with_lines(input, place, places, _spread("index_fill", input, value, shape))


def _spread(name: str, like: T, value: Any, shape: Shape) -> T:
    """One number in a shape.

    Raises:
        ShapeError: it is a tensor with axes.
    """
    if not isinstance(value, TensorBase):
        return expanded_number(like, value, shape)
    if value.shape:
        raise ShapeError(f"[{name}] the value must be a number or have shape (), got {value.shape}")
    same: T = cast(value, like.dtype.name)
    return expand(same, shape)


# Elements


@export("dl", "Tensor", "Tensor_")
@reads("index")
def scatter_reduce(
    input: Any, dim: int, index: Any, src: Any, reduce: str, *, include_self: bool = True
) -> Any:
    """The input with what comes to each place along axis `dim` reduced to one element.

    Args:
        input: a tensor of floats.
        dim: the axis.
        index: ints, as for :func:`gather`: where each element of `src` goes.
        src: a tensor at least as large as the index.
        reduce: "sum", "prod", "mean", "amax" or "amin".
        include_self: whether the input's own element counts where others come.

    Raises:
        ArgumentError, ShapeError: as for :func:`gather`, or there is no such reduction.

    Example:
        >>> import dl4all as dl
        >>> x, index = dl.tensor([1.0, 2.0]), dl.tensor([0, 0, 1])
        >>> dl.scatter_reduce(x, 0, index, dl.tensor([3.0, 4.0, 5.0]), "amax").tolist()
        [4.0, 5.0]
    """
    name = "scatter_reduce"
    if reduce not in REDUCES:
        raise ArgumentError(f"[{name}] reduce must be one of {', '.join(REDUCES)}, got {reduce!r}")
    if not input.shape:
        line = np.atleast_1d(integer_indices(name, index))
        return reshape(
            scatter_reduce(reshape(input, 1), 0, line, reshape(src, 1), reduce, include_self=include_self),
            (),
        )
    axis = strides.axis(name, dim, len(input.shape))
    places = checked_indices(name, index, input.shape[axis])
    if not places.size:
        return clone(input)
    source = src
    for i, size in enumerate(places.shape):
        source = narrow(source, i, 0, size)
    if reduce in ("sum", "mean"):
        return _summed(input, axis, places, source, reduce, include_self)
    return _by_rank(input, axis, places, source, reduce, include_self)


def _counted(input: Any, axis: int, places: NDArray) -> Any:
    """How many elements come to each place."""
    ones = expanded_number(input, 1, places.shape)
    return scatter_add(expanded_number(input, 0, input.shape), axis, places, ones)


def _summed(input: Any, axis: int, places: NDArray, source: Any, reduce: str, include_self: bool) -> Any:
    with tape.gradients(False):
        count = _counted(input, axis, places)
    start = input if include_self else where(count > 0, 0.0, input)
    total = scatter_add(start, axis, places, source)
    if reduce == "sum":
        return total
    return true_divide(total, where(count > 0, count + float(include_self), 1.0))


def _by_rank(input: Any, axis: int, places: NDArray, source: Any, reduce: str, include_self: bool) -> Any:
    """Products and extremes: those that come first to each place together, then those that come second."""
    turn = _turns(places, axis)
    neutral = {"prod": 1.0, "amax": -math.inf, "amin": math.inf}[reduce]
    with tape.gradients(False):
        some = _counted(input, axis, places) > 0
    lines = [input if include_self else where(some, neutral, input)]
    flat = flatten(source)
    targets = _flat_places(input.shape, axis, places)
    for number_of_turn in range(int(turn.max()) + 1):
        come = np.flatnonzero(turn.reshape(-1) == number_of_turn)
        rows = np.full(input.numel(), -1)
        rows[targets.reshape(-1)[come]] = come
        there = from_host(type(input).result_class, rows >= 0, input.device, copy=False)
        taken = reshape(take_rows(reshape(flat, 1, flat.numel(), 1), Indices(rows)), input.shape)
        lines.append(where(reshape(there, input.shape), taken, neutral))
    if reduce == "prod":
        found = lines[0]
        for line in lines[1:]:
            found = found * line
        return found
    return _extreme(lines, reduce)


def _extreme(lines: list[Any], reduce: str) -> Any:
    """The extreme of lines; those that are equal share its gradient."""
    return (amax if reduce == "amax" else amin)(stack(lines), 0)


def _flat_places(shape: Shape, axis: int, places: NDArray) -> NDArray:
    """Places along an axis as numbers of elements."""
    grid = list(np.indices(places.shape))
    grid[axis] = places
    steps = contiguous_strides(shape)
    return np.asarray(np.sum([g * step for g, step in zip(grid, steps, strict=True)], axis=0), np.int64)


def _turns(places: NDArray, axis: int) -> NDArray:
    """For each index, how many of its line before it name the same place."""
    lines = np.moveaxis(places, axis, -1)
    order = np.argsort(lines, -1, kind="stable")
    ranked = np.take_along_axis(lines, order, -1)
    begins = np.ones(ranked.shape, bool)
    begins[..., 1:] = ranked[..., 1:] != ranked[..., :-1]
    count = np.arange(ranked.shape[-1])
    turn = count - np.maximum.accumulate(np.where(begins, count, 0), -1)
    made = np.empty_like(turn)
    np.put_along_axis(made, order, turn, -1)
    return np.moveaxis(made, -1, axis)


@export("dl", "Tensor", "Tensor_")
@reads("indices")
def index_put(input: Any, indices: tuple[Any, ...], values: Any, accumulate: bool = False) -> Any:
    """The input with values at the places that indices into its first axes name together.

    Args:
        input: a tensor.
        indices: ints or bools for each of the first axes, as in ``input[indices]``.
        values: a tensor, broadcast to what the indices select.
        accumulate: add the values, several for one place too, instead of replacing the elements.

    Raises:
        ArgumentError: an index is out of range, or there are too many.
        ShapeError: the values do not broadcast.

    Example:
        >>> import dl4all as dl
        >>> index = (dl.tensor([0, 0, 1]),)
        >>> dl.index_put(dl.zeros(2), index, dl.tensor([1.0, 2.0, 3.0]), accumulate=True).tolist()
        [3.0, 3.0]
    """
    key = tuple(indices)
    if not accumulate:
        made = _copied(input, values)
        setitem(made, key, values)
        return made
    picks = advanced_indexing.parse_key(key, input.shape)
    count = len(picks.axes)
    if picks.axes != tuple(range(count)) or any(entry is None for entry in picks.view_key):
        raise ArgumentError("[index_put] expected ints or bools for each of the first axes")
    flat = flatten_indices("index_put", picks.arrays, input.shape[:count])
    shape = (*flat.shape, *input.shape[count:])
    if np.broadcast_shapes(values.shape, shape) != shape:
        raise ShapeError(f"[index_put] values of shape {values.shape} do not broadcast to {shape}")
    inner = math.prod(input.shape[count:])
    rows = reshape(expand(values, shape), 1, flat.size, inner)
    sums = take_rows_backward(rows, Indices(flat), math.prod(input.shape[:count]))
    return add(input, reshape(sums, input.shape))


@export("dl", "Tensor", "Tensor_")
@reads("mask")
def masked_scatter(input: T, mask: Any, source: T) -> T:
    """The input with elements of `source`, one after the other, where a mask is true.

    Args:
        input: a tensor.
        mask: bools that broadcast with the input.
        source: of the input's dtype, with at least as many elements as the mask has true ones.

    Raises:
        ArgumentError: the source has too few elements.
        DTypeError: the mask is not of bools, or the source of another dtype.
        ShapeError: the mask does not broadcast to the input.

    Example:
        >>> import dl4all as dl
        >>> mask = dl.tensor([True, False, True])
        >>> dl.masked_scatter(dl.zeros(3), mask, dl.tensor([5.0, 6.0])).tolist()
        [5.0, 0.0, 6.0]
    """
    chosen = bool_mask("masked_scatter", mask)
    try:
        shape = np.broadcast_shapes(input.shape, chosen.shape)
    except ValueError:
        raise ShapeError(
            f"[masked_scatter] a mask of shape {chosen.shape} does not broadcast to {input.shape}"
        ) from None
    places = np.flatnonzero(np.broadcast_to(chosen, shape))
    if source.dtype != input.dtype:
        raise DTypeError(f"[masked_scatter] the source must be of {input.dtype}, got {source.dtype}")
    if source.numel() < len(places):
        raise ArgumentError(
            f"[masked_scatter] {len(places)} places, but only {source.numel()} elements to put there"
        )
    whole = expand(input, shape)
    if not len(places):
        return clone(whole)  # type: ignore[no-any-return]
    rows = reshape(narrow(flatten(source), 0, 0, len(places)), len(places), 1)
    made: T = reshape(put_rows(reshape(whole, whole.numel(), 1), rows, Indices(places)), shape)
    return made


# Parts


@export("dl", "Tensor")
def select_scatter(input: Any, src: Any, dim: int, index: int) -> Any:
    """The input with `src` at one place of axis `dim`.

    Raises:
        ArgumentError, ShapeError: the place is out of range, or the source does not fit.

    Example:
        >>> import dl4all as dl
        >>> dl.select_scatter(dl.zeros(2, 2), dl.ones(2), 0, 1).tolist()
        [[0.0, 0.0], [1.0, 1.0]]
    """
    axis = strides.axis("select_scatter", dim, len(input.shape))
    return _with_part(input, (*(slice(None),) * axis, index), src)


@export("dl", "Tensor")
def slice_scatter(
    input: Any, src: Any, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Any:
    """The input with `src` at the places of axis `dim` that a slice names.

    Raises:
        ArgumentError, ShapeError: the slice or the source does not fit.

    Example:
        >>> import dl4all as dl
        >>> dl.slice_scatter(dl.zeros(4), dl.ones(2), start=1, end=3).tolist()
        [0.0, 1.0, 1.0, 0.0]
    """
    axis = strides.axis("slice_scatter", dim, len(input.shape))
    return _with_part(input, (*(slice(None),) * axis, slice(start, end, step)), src)


@export("dl", "Tensor")
def diagonal_scatter(input: Any, src: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    """The input with `src` on a diagonal.

    Raises:
        ArgumentError, ShapeError: there are no such axes, or the source does not fit.

    Example:
        >>> import dl4all as dl
        >>> dl.diagonal_scatter(dl.zeros(2, 2), dl.ones(2)).tolist()
        [[1.0, 0.0], [0.0, 1.0]]
    """
    ndim = len(input.shape)
    first, second = (strides.axis("diagonal_scatter", d, ndim) for d in (dim1, dim2))
    last = permute(input, *(i for i in range(ndim) if i not in (first, second)), first, second)
    rows, columns = last.shape[-2:]
    on = np.arange(max(min(rows - max(-offset, 0), columns - max(offset, 0)), 0))
    wanted = (*last.shape[:-2], len(on))
    if src.shape != wanted:
        raise ShapeError(f"[diagonal_scatter] the source must have shape {wanted}, got {src.shape}")
    made = _copied(last, src)
    setitem(made, (Ellipsis, on + max(-offset, 0), on + max(offset, 0)), src)
    return movedim(made, (-2, -1), (first, second))


def _copied(input: Any, source: Any) -> Any:
    """A copy that can be changed to `source`, in all samples of ``vmap`` that this is in."""
    within = isinstance(source, TensorBase) and source.levels
    return clone(source.beside([input])[0] if within else input)


def _with_part(input: Any, key: Any, src: Any) -> Any:
    shape = untracked_view(input, key).shape
    if src.shape != shape:
        raise ShapeError(f"[scatter] the source must have shape {shape}, got {src.shape}")
    made = _copied(input, src)
    setitem(made, key, src)
    return made


@export("dl")
def as_strided(input: T, size: Any, stride: Any, storage_offset: int | None = None) -> T:
    """A view of a tensor's memory with a shape and steps of one's own.

    Args:
        input: whose memory is shown.
        size: the shape.
        stride: for each axis, how many elements on its next place lies.
        storage_offset: where the first element lies; by default where the input's does.

    Raises:
        ArgumentError: there is not one stride for each axis, or the view reaches beyond the memory.

    Example:
        >>> import dl4all as dl
        >>> dl.as_strided(dl.tensor([1, 2, 3]), (2, 2), (1, 1)).tolist()
        [[1, 2], [2, 3]]
    """
    shape, steps = strides.sizes("as_strided", (size,)), strides.sizes("as_strided", (stride,))
    start = input.offset if storage_offset is None else storage_offset
    if len(shape) != len(steps) or min((start, *shape, *steps), default=0) < 0:
        raise ArgumentError(
            f"[as_strided] size {shape} and stride {steps} from {start} do not fit each other"
        )
    shown = _memory_places(shape, steps, start)
    if shown.size and shown.max() >= input.storage.nbytes // input.dtype.itemsize:
        raise ArgumentError(f"[as_strided] size {shape} and stride {steps} reach beyond the tensor's memory")
    view: T = input.as_strided(shape, steps, start)
    if tape.state.enabled and tape.wants_gradient(input):
        _attach_strided(input, view, shown)
    return view


def _memory_places(shape: Shape, steps: Shape, start: int) -> NDArray:
    grid = np.indices(shape) if shape else np.zeros((0,), np.int64)
    return np.asarray(
        start + np.sum([g * step for g, step in zip(grid, steps, strict=True)], axis=0), np.int64
    )


def _attach_strided(input: Any, view: Any, shown: NDArray) -> None:
    """What flows back to an element comes from all places of the view that show it."""
    own = _memory_places(input.shape, input.strides, input.offset).reshape(-1)
    order = np.argsort(own, kind="stable")
    at = np.clip(np.searchsorted(own[order], shown.reshape(-1)), 0, max(own.size - 1, 0))
    source = Indices(np.where(own[order][at] == shown.reshape(-1), order[at], -1))
    shape, count = input.shape, input.numel()

    def backward(grads: Any, saved: Any, needs: Any) -> list[Any]:
        return [reshape(take_rows_backward(reshape(grads[0], 1, len(source), 1), source, count), shape)]

    tape.attach("as_strided", [input], [view], backward)
