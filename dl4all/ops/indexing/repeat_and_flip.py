"""Repetition, reversal and cyclic shifts of tensors along axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar, overload

import numpy as np

from dl4all.errors import ArgumentError
from dl4all.ops.core import strides, tape
from dl4all.ops.core.exports import export
from dl4all.ops.core.limits import check_shape, host_memory
from dl4all.ops.core.tensor_base import Array, Shape, TensorBase, from_host
from dl4all.ops.core.vmap_hook import reads
from dl4all.ops.indexing.concatenation import cat, prepend_axes
from dl4all.ops.indexing.indices import Indices, NDArray, integer_indices
from dl4all.ops.indexing.rows import select_indices
from dl4all.ops.memory.copy import copy_into, new_like, unshared
from dl4all.ops.memory.parts import narrow
from dl4all.ops.memory.views import expand, flatten, reshape

T = TypeVar("T", bound=TensorBase)


@overload
def repeat(input: T, *repeats: int | Shape) -> T: ...
@overload
def repeat(input: T, *, repeats: Shape) -> T: ...
@export("Tensor")
def repeat(input: T, *args: int | Shape, **named: Shape) -> T:
    """Repeat the tensor along each axis.

    Args:
        input: a tensor.
        repeats: how often, for each axis; further numbers in front add axes.

    Raises:
        ArgumentError: there are fewer numbers than axes, or one is negative.

    Example:
        >>> import dl4all as dl
        >>> dl.tensor([1.0, 2.0]).repeat(2, 2).tolist()
        [[1.0, 2.0, 1.0, 2.0], [1.0, 2.0, 1.0, 2.0]]
    """
    counts = strides.named_sizes("repeat", args, named, "repeats") if named else strides.sizes("repeat", args)
    if len(counts) < len(input.shape) or min(counts, default=0) < 0:
        raise ArgumentError(
            f"[repeat] expected a number of at least 0 for each axis of {input.shape}, got {counts}"
        )
    input = prepend_axes(input, len(counts))
    check_shape("repeat", tuple(count * size for count, size in zip(counts, input.shape, strict=True)))
    pairs = tuple(zip(counts, input.shape, strict=True))
    separated = reshape(input, *(n for _, size in pairs for n in (1, size)))
    expanded = expand(separated, *(n for pair in pairs for n in pair))
    return unshared(reshape(expanded, tuple(count * size for count, size in pairs)), input)


@overload
def tile(input: T, *dims: int | Shape) -> T: ...
@overload
def tile(input: T, *, dims: Shape) -> T: ...
@export("dl", "Tensor")
def tile(input: T, *args: int | Shape, **named: Shape) -> T:
    """:func:`repeat`; fewer numbers than axes are for the last axes.

    Example:
        >>> import dl4all as dl
        >>> dl.tile(dl.tensor([1, 2]), (2,)).tolist()
        [1, 2, 1, 2]
    """
    counts = strides.named_sizes("tile", args, named, "dims") if named else strides.sizes("tile", args)
    return repeat(input, (*(1,) * (len(input.shape) - len(counts)), *counts))


@export("dl", "Tensor", out=True)
@reads("repeats")
def repeat_interleave(
    input: T,
    repeats: Array | NDArray | Sequence[int] | int | None = None,
    dim: int | None = None,
    *,
    output_size: int | None = None,
) -> T:
    """Repeat each element along axis `dim` several times in a row; without `dim`, of the flattened tensor.

    Args:
        input: a tensor. Alone, it is `repeats`: the result are the indices of what is repeated.
        repeats: how often: an int, or one for each index of the axis.
        dim: the axis.
        output_size: the result's size along the axis, if the caller knows it.

    Raises:
        ArgumentError: a number is negative or too large, there is not one for each index, or `output_size`
            is another one.

    Example:
        >>> import dl4all as dl
        >>> dl.repeat_interleave(dl.tensor([5.0, 6.0]), dl.tensor([1, 2])).tolist()
        [5.0, 6.0, 6.0]
        >>> dl.repeat_interleave(dl.tensor([1, 2])).tolist()
        [0, 1, 1]
    """
    if repeats is None:
        places = np.arange(input.numel())
        source: T = from_host(type(input).result_class, places, input.device, copy=False)
        return repeat_interleave(source, input, 0, output_size=output_size)
    if dim is None:
        return repeat_interleave(flatten(input), repeats, 0, output_size=output_size)
    axis = strides.axis("repeat_interleave", dim, len(input.shape))
    size = input.shape[axis]
    counts = integer_indices("repeat_interleave", repeats).reshape(-1)
    if len(counts) not in (1, size) or (len(counts) and counts.min() < 0):
        raise ArgumentError(
            f"[repeat_interleave] expected one number of at least 0, or one for each of {size} places, "
            f"got {repeats}"
        )
    total = sum(counts.tolist()) if len(counts) == size else size * sum(counts.tolist())
    if output_size not in (None, total):
        raise ArgumentError(f"[repeat_interleave] the result has size {total}, not {output_size}")
    check_shape("repeat_interleave", (*input.shape[:axis], total, *input.shape[axis + 1 :]))
    with host_memory("repeat_interleave"):
        return select_indices(input, axis, Indices(np.repeat(np.arange(size), counts)))


@overload
def flip(input: T, *dims: int | Shape) -> T: ...
@overload
def flip(input: T, *, dims: Shape) -> T: ...
@export("dl", "Tensor")
def flip(input: T, *args: int | Shape, **named: Shape) -> T:
    """Copy the tensor with the elements along some axes in reverse order.

    Raises:
        ArgumentError: there is no such axis, or it is named twice.

    Example:
        >>> import dl4all as dl
        >>> dl.flip(dl.tensor([[1.0, 2.0], [3.0, 4.0]]), (1,)).tolist()
        [[2.0, 1.0], [4.0, 3.0]]
    """
    axes = strides.named_sizes("flip", args, named, "dims") if named else strides.sizes("flip", args)
    flipped = {strides.axis("flip", axis, max(len(input.shape), 1)) for axis in axes}
    if len(flipped) != len(axes):
        raise ArgumentError(f"[flip] an axis is named twice in {axes}")
    offset, steps = input.offset, list(input.strides)
    for axis in flipped if input.shape else ():
        offset += max(input.shape[axis] - 1, 0) * steps[axis]
        steps[axis] = -steps[axis]
    result: T = new_like(input, input.shape)
    copy_into(result, input.strided_view(input.shape, tuple(steps), offset))
    tape.add_node("flip", [input], [result], lambda grads, saved, needs: [flip(grads[0], tuple(flipped))])
    return result


@export("dl", "Tensor")
def roll(input: T, shifts: int | Shape, dims: int | Shape | None = None) -> T:
    """Shift the elements along axes; what passes the end comes back at the front.

    Raises:
        ArgumentError: there are not as many shifts as axes.

    Example:
        >>> import dl4all as dl
        >>> dl.roll(dl.arange(4), 1).tolist()
        [3, 0, 1, 2]
    """
    if dims is None:
        return reshape(roll(flatten(input), shifts, 0), input.shape)
    offsets, axes = strides.sizes("roll", (shifts,)), strides.sizes("roll", (dims,))
    if len(offsets) != len(axes):
        raise ArgumentError(f"[roll] expected as many shifts as axes, got {offsets} for {axes}")
    rolled = input
    for offset, dim in zip(offsets, axes, strict=True):
        axis = strides.axis("roll", dim, len(input.shape))
        size = input.shape[axis]
        if size and (start := -offset % size):
            rolled = cat([narrow(rolled, axis, start, size - start), narrow(rolled, axis, 0, start)], axis)
    return unshared(rolled, input)
