"""Joining, splitting and repeating tensors, and turning them round."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

from dl4all.errors import ArgumentError, DTypeError, ShapeError
from dl4all.ops.core import strides as indexing
from dl4all.ops.core import tape
from dl4all.ops.core.exports import export
from dl4all.ops.core.op import primitives
from dl4all.ops.core.tensor_base import Shape, TensorBase
from dl4all.ops.core.vmap_hook import BatchedTensorBase, reads
from dl4all.ops.elementwise.arithmetic import clone
from dl4all.ops.elementwise.declare import promote
from dl4all.ops.indexing.indices import Indices, integers
from dl4all.ops.indexing.rows import take_rows
from dl4all.ops.memory.copy import copy_into, new_like
from dl4all.ops.memory.views import expand, flatten, narrow, reshape, select, unsqueeze

T = TypeVar("T", bound=TensorBase)
NOTHING = (0,)  # a shape that fits every other one in cat


@export(
    "dl",
    aliases=(
        "concat",
        "concatenate",
    ),
)
def cat(tensors: Sequence[T], dim: int = 0) -> T:
    """Tensors one behind the other along axis `dim`, in their common dtype.

    Args:
        tensors: at least one; their shapes differ at most along `dim`. Those of shape (0,) are left out,
            so that one can begin with nothing.
        dim: the axis.

    Raises:
        ShapeError: the shapes do not fit.
        ArgumentError: there is no tensor, or they live on different devices.
        DTypeError: something is no tensor.

    Example:
        >>> import dl4all as dl
        >>> dl.cat([dl.ones(1, 2), dl.zeros(2, 2)]).tolist()
        [[1.0, 1.0], [0.0, 0.0], [0.0, 0.0]]
    """
    parts = _listed("cat", tensors)
    first = next((part for part in parts if part.shape != NOTHING), parts[0])
    place = indexing.axis("cat", dim, len(first.shape))
    for part in parts:
        if part.shape == NOTHING:
            continue
        if len(part.shape) != len(first.shape) or any(
            a != b for i, (a, b) in enumerate(zip(part.shape, first.shape, strict=True)) if i != place
        ):
            raise ShapeError(
                f"[cat] shapes {first.shape} and {part.shape} must be equal but for axis {place}"
            )
    sizes = [0 if part.shape == NOTHING else part.shape[place] for part in parts]
    shape = (*first.shape[:place], sum(sizes), *first.shape[place + 1 :])
    joined: T = new_like(first, shape, promote("cat", parts, "common"))
    ends = np.cumsum([0, *sizes]).tolist()
    for start, end, part in zip(ends, ends[1:], parts, strict=False):
        if end > start:
            copy_into(joined.as_strided(*_region(joined, place, start, end)), part)
    given = [(part.dtype, part.shape) for part in parts]

    def backward(grads: Any, saved: Any, needs: tuple[bool, ...]) -> list[Any]:
        pieces = (narrow(grads[0], place, start, end - start) for start, end in itertools.pairwise(ends))
        return [
            _as(reshape(piece, 0) if shape == NOTHING else piece, dtype) if needed else None
            for piece, (dtype, shape), needed in zip(pieces, given, needs, strict=True)
        ]

    tape.add_node("cat", parts, [joined], backward)
    return joined


concat = concatenate = cat


def _listed(name: str, tensors: Sequence[T]) -> list[T]:
    """
    Raises:
        DTypeError, ArgumentError
    """
    if isinstance(tensors, TensorBase):
        raise DTypeError(f"[{name}] expected a list of tensors, got one tensor")
    parts = list(tensors)
    for part in parts:
        if not isinstance(part, TensorBase):
            raise DTypeError(f"[{name}] expected a list of tensors, got a {type(part).__name__} in it")
    if not parts:
        raise ArgumentError(f"[{name}] expected at least one tensor, got none")
    for part in parts:
        if part.device is not parts[0].device:
            raise ArgumentError(
                f"[{name}] operands live on different devices, {parts[0].device} and {part.device}; "
                f"move one with .to({str(parts[0].device)!r})"
            )
    for part in parts:
        if isinstance(part, BatchedTensorBase):
            parts = part.match_levels(parts)
    return parts


def _region(whole: TensorBase, place: int, start: int, end: int) -> tuple[Shape, Shape, int]:
    key = (*(slice(None),) * place, slice(start, end))
    return indexing.basic(key, whole.shape, whole.strides, whole.offset)


def _as(tensor: TensorBase, dtype: np.dtype[Any]) -> TensorBase:
    made: TensorBase = tensor if tensor.dtype == dtype else primitives.cast(tensor, dtype.name)
    return made


@export("dl")
def stack(tensors: Sequence[T], dim: int = 0) -> T:
    """Tensors of one shape side by side along a new axis `dim`.

    Raises:
        ShapeError: the shapes differ.
        ArgumentError, DTypeError: as for :func:`cat`.

    Example:
        >>> import dl4all as dl
        >>> dl.stack([dl.tensor([1.0, 2.0]), dl.tensor([3.0, 4.0])], dim=1).tolist()
        [[1.0, 3.0], [2.0, 4.0]]
    """
    parts = _listed("stack", tensors)
    for part in parts:
        if part.shape != parts[0].shape:
            raise ShapeError(f"[stack] shapes {parts[0].shape} and {part.shape} must be equal")
    place = indexing.axis("stack", dim, len(parts[0].shape) + 1)
    return cat([unsqueeze(part, place) for part in parts], place)


def _with_axes(tensor: T, ndim: int) -> T:
    """With axes of size 1 in front until there are `ndim`."""
    missing = max(ndim - len(tensor.shape), 0)
    return reshape(tensor, (*(1,) * missing, *tensor.shape)) if missing else tensor


@export("dl")
def hstack(tensors: Sequence[T]) -> T:
    """:func:`cat` along the second axis, along the only one of 1-d tensors."""
    parts = [_with_axes(part, 1) for part in _listed("hstack", tensors)]
    return cat(parts, 0 if len(parts[0].shape) == 1 else 1)


@export("dl")
def vstack(tensors: Sequence[T]) -> T:
    """:func:`cat` along the first axis; 1-d tensors are rows."""
    return cat([_with_axes(part, 2) for part in _listed("vstack", tensors)], 0)


@export("dl", "Tensor")
def split(input: T, split_size_or_sections: int | Sequence[int], dim: int = 0) -> tuple[T, ...]:
    """Views of parts along axis `dim`: of one size, the last perhaps smaller, or of given sizes.

    Raises:
        ArgumentError: a size is negative, or they do not add up to the axis's.

    Example:
        >>> import dl4all as dl
        >>> [part.tolist() for part in dl.split(dl.arange(5), 2)]
        [[0, 1], [2, 3], [4]]
    """
    place = indexing.axis("split", dim, len(input.shape))
    size = input.shape[place]
    if isinstance(split_size_or_sections, int):
        part = split_size_or_sections
        if part < 0 or (part == 0 and size):
            raise ArgumentError(f"[split] the size of a part must be positive, got {part}")
        sections = [min(part, size - start) for start in range(0, size, part or 1)] or [0]
    else:
        sections = list(indexing.sizes("split", (tuple(split_size_or_sections),)))
        if min(sections, default=0) < 0 or sum(sections) != size:
            raise ArgumentError(f"[split] sizes {sections} do not add up to {size}, that of axis {place}")
    starts = np.cumsum([0, *sections]).tolist()
    return tuple(narrow(input, place, start, n) for start, n in zip(starts, sections, strict=False))


@export("dl", "Tensor")
def chunk(input: T, chunks: int, dim: int = 0) -> tuple[T, ...]:
    """At most `chunks` views of parts of one size along axis `dim`, the last perhaps smaller.

    Raises:
        ArgumentError: `chunks` is not positive.
    """
    if chunks < 1:
        raise ArgumentError(f"[chunk] expected at least one part, got {chunks}")
    size = input.shape[indexing.axis("chunk", dim, len(input.shape))]
    return split(input, -(-size // chunks), dim) if size else split(input, [0] * chunks, dim)


@export("dl", "Tensor")
def unbind(input: T, dim: int = 0) -> tuple[T, ...]:
    """Views along axis `dim`, without it."""
    size = input.shape[indexing.axis("unbind", dim, len(input.shape))]
    return tuple(select(input, dim, i) for i in range(size))


@export("Tensor")
def repeat(input: T, *repeats: int | Shape) -> T:
    """Copies one behind the other, so many along each axis; there may be more of these in front.

    Raises:
        ArgumentError: there are fewer numbers than axes, or one is negative.

    Example:
        >>> import dl4all as dl
        >>> dl.tensor([1.0, 2.0]).repeat(2, 2).tolist()
        [[1.0, 2.0, 1.0, 2.0], [1.0, 2.0, 1.0, 2.0]]
    """
    times = indexing.sizes("repeat", repeats)
    if len(times) < len(input.shape) or min(times, default=0) < 0:
        raise ArgumentError(
            f"[repeat] expected a number of at least 0 for each axis of {input.shape}, got {times}"
        )
    wide = _with_axes(input, len(times))
    pairs = tuple(zip(times, wide.shape, strict=True))
    apart = reshape(wide, *(size for _, old in pairs for size in (1, old)))
    grown = expand(apart, *(size for pair in pairs for size in pair))
    return reshape(grown, tuple(n * old for n, old in pairs))


@export("dl", "Tensor")
def tile(input: T, *dims: int | Shape) -> T:
    """:func:`repeat`; with fewer numbers than axes for the last ones."""
    times = indexing.sizes("tile", dims)
    return repeat(input, (*(1,) * (len(input.shape) - len(times)), *times))


@export("dl", "Tensor")
@reads("repeats")
def repeat_interleave(input: T, repeats: Any, dim: int | None = None) -> T:
    """Each place along axis `dim` several times in a row; without `dim`, each element.

    Args:
        input: a tensor.
        repeats: how often, an int or one for each place.
        dim: the axis.

    Raises:
        ArgumentError: a number is negative, or there is not one for each place.
    """
    if dim is None:
        return repeat_interleave(flatten(input), repeats, 0)
    place = indexing.axis("repeat_interleave", dim, len(input.shape))
    size = input.shape[place]
    times = integers("repeat_interleave", repeats).reshape(-1)
    if len(times) not in (1, size) or (len(times) and times.min() < 0):
        raise ArgumentError(
            f"[repeat_interleave] expected one number of at least 0, or one for each of {size} places, "
            f"got {repeats}"
        )
    return picked(input, place, Indices(np.repeat(np.arange(size), times)))


def picked(input: T, place: int, places: Indices) -> T:
    """The places of an axis in another order."""
    shape = input.shape
    three = reshape(input, math.prod(shape[:place]), shape[place], math.prod(shape[place + 1 :]))
    made: T = reshape(take_rows(three, places), (*shape[:place], len(places), *shape[place + 1 :]))
    return made


@export("dl", "Tensor")
def flip(input: T, *dims: int | Shape) -> T:
    """A copy with axes in reverse order.

    Raises:
        ArgumentError: there is no such axis, or it is named twice.

    Example:
        >>> import dl4all as dl
        >>> dl.flip(dl.tensor([[1.0, 2.0], [3.0, 4.0]]), (1,)).tolist()
        [[2.0, 1.0], [4.0, 3.0]]
    """
    named = indexing.sizes("flip", dims)
    turned = {indexing.axis("flip", d, max(len(input.shape), 1)) for d in named}
    if len(turned) != len(named):
        raise ArgumentError(f"[flip] an axis is named twice in {named}")
    offset, strides = input.offset, list(input.strides)
    for axis in turned if input.shape else ():
        offset += max(input.shape[axis] - 1, 0) * strides[axis]
        strides[axis] = -strides[axis]
    made: T = new_like(input, input.shape)
    copy_into(made, input.as_strided(input.shape, tuple(strides), offset))
    tape.add_node("flip", [input], [made], lambda grads, saved, needs: [flip(grads[0], tuple(turned))])
    return made


@export("dl", "Tensor")
def roll(input: T, shifts: int | Shape, dims: int | Shape | None = None) -> T:
    """The places of axes moved on, those that go over the end coming back at the front.

    Raises:
        ArgumentError: there are not as many shifts as axes.
    """
    if dims is None:
        return reshape(roll(flatten(input), shifts, 0), input.shape)
    steps = (shifts,) if isinstance(shifts, int) else tuple(shifts)
    axes = (dims,) if isinstance(dims, int) else tuple(dims)
    if len(steps) != len(axes):
        raise ArgumentError(f"[roll] expected as many shifts as axes, got {steps} for {axes}")
    for step, dim in zip(steps, axes, strict=True):
        place = indexing.axis("roll", dim, len(input.shape))
        size = input.shape[place]
        if size and (cut := -step % size):
            input = cat([narrow(input, place, cut, size - cut), narrow(input, place, 0, cut)], place)
    made: T = input if steps and input.numel() and any(steps) else clone(input)
    return made
