"""Other shapes on the same memory: no element is moved, and gradients go the same way back."""

from __future__ import annotations

import math
from typing import Any, TypeVar

import numpy as np

from dl4all.errors import ArgumentError, ShapeError
from dl4all.ops.core import strides as indexing
from dl4all.ops.core import tape
from dl4all.ops.core.exports import export
from dl4all.ops.core.op import Kernel, Result, example, op, primitives
from dl4all.ops.core.tensor_base import Array, Shape, TensorBase, contiguous_strides
from dl4all.ops.elementwise.arithmetic import clone
from dl4all.ops.memory.copy import COPY, MOVABLE_DTYPES, copy_into, fill_with, fresh_copy, new_like

T = TypeVar("T", bound=TensorBase)


@export("Tensor")
def contiguous(input: T) -> T:
    """Itself if the elements lie in row-major order, else a copy in which they do."""
    if input.is_contiguous():
        return input
    copied: T
    if input.dtype == np.float32 or input.device.is_host:
        copied = clone(input)
        return copied
    copied = fresh_copy(input)  # type: ignore[assignment]
    tape.add_node("contiguous", [input], [copied], lambda grads, saved, needs: [grads[0]])
    return copied


@export("dl", "Tensor")
def reshape(input: T, *shape: int | Shape) -> T:
    """The same elements in another shape; one size may be -1. A view of a contiguous tensor.

    Raises:
        ShapeError: the numbers of elements differ.

    Example:
        >>> import dl4all as dl
        >>> dl.tensor([1.0, 2.0, 3.0, 4.0]).reshape(2, -1).tolist()
        [[1.0, 2.0], [3.0, 4.0]]
    """
    before = input.shape
    wanted = indexing.complete_shape(indexing.sizes("reshape", shape), before)
    source = contiguous(input)
    view: T = source.as_strided(wanted, contiguous_strides(wanted), source.offset)
    tape.add_node("reshape", [source], [view], lambda grads, saved, needs: [reshape(grads[0], before)])
    return view


@export("Tensor")
def reshape_as(input: T, other: TensorBase) -> T:
    """:func:`reshape` to the shape of another tensor."""
    return reshape(input, other.shape)


@export("Tensor")
def view(input: T, *shape: int | Shape) -> T:
    """:func:`reshape`, never with a copy: the result shares the memory of `input`.

    Raises:
        ShapeError: the numbers of elements differ, or the strides do not allow it.
    """
    before = input.shape
    wanted = indexing.complete_shape(indexing.sizes("view", shape), before, "view")
    strides = indexing.view_strides(before, input.strides, wanted)
    if strides is None:
        raise ShapeError(
            f"[view] a tensor of shape {before} and strides {input.strides} has no view of shape {wanted}; "
            "use .reshape(), which copies"
        )
    made: T = input.as_strided(wanted, strides, input.offset)
    tape.add_node("view", [input], [made], lambda grads, saved, needs: [reshape(grads[0], before)])
    return made


@export("Tensor")
def view_as(input: T, other: TensorBase) -> T:
    """:func:`view` with the shape of another tensor."""
    return view(input, other.shape)


@export("dl", "Tensor")
def unflatten(input: T, dim: int, sizes: Shape) -> T:
    """The axis `dim` as several, of the given sizes; one may be -1."""
    place = indexing.axis("unflatten", dim, len(input.shape))
    parts = indexing.complete_shape(indexing.sizes("unflatten", (sizes,)), (input.shape[place],), "unflatten")
    return reshape(input, *input.shape[:place], *parts, *input.shape[place + 1 :])


@export("dl", "Tensor")
def flatten(input: T, start_dim: int = 0, end_dim: int = -1) -> T:
    """The axes from `start_dim` to `end_dim` as one."""
    shape = input.shape
    if not shape:
        return reshape(input, 1)
    start, end = (indexing.axis("flatten", dim, len(shape)) for dim in (start_dim, end_dim))
    if start > end:
        raise ArgumentError(f"[flatten] start_dim {start_dim} comes after end_dim {end_dim}")
    return reshape(input, *shape[:start], math.prod(shape[start : end + 1]), *shape[end + 1 :])


@export("dl", "Tensor")
def squeeze(input: T, dim: int | Shape | None = None) -> T:
    """Without the axes of size 1: all of them, or those among `dim`."""
    ndim = len(input.shape)
    dims = range(ndim) if dim is None else (dim,) if isinstance(dim, int) else dim
    gone = {indexing.axis("squeeze", d, max(ndim, 1)) for d in dims}
    return index(
        input, tuple(0 if i in gone and size == 1 else slice(None) for i, size in enumerate(input.shape))
    )


@export("dl", "Tensor")
def unsqueeze(input: T, dim: int) -> T:
    """With an axis of size 1 put in before axis `dim`."""
    place = indexing.axis("unsqueeze", dim, len(input.shape) + 1)
    return index(input, (*(slice(None),) * place, None))


@export("dl", "Tensor")
def permute(input: T, *dims: int | Shape) -> T:
    """A view with the axes in another order.

    Raises:
        ArgumentError: `dims` does not name every axis once.
    """
    ndim = len(input.shape)
    wanted = indexing.sizes("permute", dims)
    order = tuple(indexing.axis("permute", dim, ndim) for dim in wanted)
    if sorted(order) != list(range(ndim)):
        raise ArgumentError(f"[permute] {wanted} does not name each axis of {input.shape} once")
    view: T = input.as_strided(
        tuple(input.shape[d] for d in order), tuple(input.strides[d] for d in order), input.offset
    )
    back = tuple(order.index(i) for i in range(ndim))
    tape.add_node("permute", [input], [view], lambda grads, saved, needs: [permute(grads[0], *back)])
    return view


@export(
    "dl",
    "Tensor",
    aliases=(
        "swapaxes",
        "swapdims",
    ),
)
def transpose(input: T, dim0: int, dim1: int) -> T:
    """A view with two axes swapped."""
    order = list(range(len(input.shape)))
    first, second = (indexing.axis("transpose", d, max(len(order), 1)) for d in (dim0, dim1))
    if not order:
        return permute(input)
    order[first], order[second] = second, first
    return permute(input, *order)


swapaxes = transpose


@export("dl", "Tensor", aliases=("moveaxis",))
def movedim(input: T, source: int | Shape, destination: int | Shape) -> T:
    """A view with the axes `source` at the places `destination`, the others in their order.

    Raises:
        ArgumentError: an axis is named twice, or there are not as many places.
    """
    ndim = max(len(input.shape), 1)
    moved, places = (
        [indexing.axis("movedim", d, ndim) for d in ((dims,) if isinstance(dims, int) else dims)]
        for dims in (source, destination)
    )
    if len(moved) != len(places) or len(set(moved)) != len(moved) or len(set(places)) != len(places):
        raise ArgumentError(f"[movedim] {source} and {destination} must name as many axes, each of them once")
    rest = iter([axis for axis in range(ndim) if axis not in moved])
    new = dict(zip(places, moved, strict=True))
    order = [new[i] if i in new else next(rest) for i in range(ndim)]
    return permute(input, *order[: len(input.shape)])


@export("Tensor")
def expand(input: T, *shape: int | Shape) -> T:
    """A view in which axes of size 1 are repeated without copying; -1 keeps a size.

    Raises:
        ShapeError: an axis that is not of size 1 would change.
    """
    before = input.shape
    wanted, strides = indexing.expanded(indexing.sizes("expand", shape), before, input.strides)
    view: T = input.as_strided(wanted, strides, input.offset)
    tape.add_node(
        "expand", [input], [view], lambda grads, saved, needs: [primitives.sum_to(grads[0], before)]
    )
    return view


@export("Tensor")
def expand_as(input: T, other: TensorBase) -> T:
    """:func:`expand` to the shape of another tensor."""
    return expand(input, other.shape)


@export("dl", "Tensor")
def broadcast_to(input: T, shape: Shape) -> T:
    """A view of `shape` in which axes of size 1, and new ones in front, repeat."""
    return expand(input, shape)


@export("dl", "Tensor")
def select(input: T, dim: int, index: int) -> T:
    """A view without axis `dim`, of what is at `index` along it."""
    place = indexing.axis("select", dim, len(input.shape))
    return _index(input, (*(slice(None),) * place, index))


@export("dl", "Tensor")
def narrow(input: T, dim: int, start: int, length: int) -> T:
    """A view of `length` places along axis `dim`, from `start` on.

    Raises:
        ArgumentError: there are not so many.
    """
    place = indexing.axis("narrow", dim, len(input.shape))
    size = input.shape[place]
    first = start + size if start < 0 else start
    if not 0 <= first <= first + length <= size:
        raise ArgumentError(
            f"[narrow] start {start} and length {length} do not fit axis {place} of shape {input.shape}"
        )
    return index(input, (*(slice(None),) * place, slice(first, first + length)))


@export("dl", "Tensor")
def diagonal(input: T, offset: int = 0, dim1: int = 0, dim2: int = 1) -> T:
    """A view of the diagonal of axes `dim1` and `dim2`, `offset` places above it; its axis comes last.

    Raises:
        ArgumentError: the two axes are the same.
    """
    ndim = len(input.shape)
    first, second = (indexing.axis("diagonal", d, ndim) for d in (dim1, dim2))
    if first == second:
        raise ArgumentError(f"[diagonal] dim1 and dim2 are the same axis, {first}")
    region = indexing.diagonal(input.shape, input.strides, input.offset, offset, first, second)
    made: T = input.as_strided(*region)
    shape = input.shape
    within = indexing.diagonal(shape, contiguous_strides(shape), 0, offset, first, second)
    tape.add_node("diagonal", [input], [made], lambda grads, saved, needs: [place(grads[0], shape, within)])
    return made


Region = tuple[Shape, Shape, int]
"""Shape, strides and offset of a view of a contiguous tensor in which no two elements lie in one place."""


def place(input: T, shape: Shape, region: Region) -> T:
    """Zeros of a shape with `input` at a region: the gradient of taking that."""
    made: T = new_like(input, shape)
    fill_with(made, 0)
    copy_into(made.as_strided(*region), input)
    tape.add_node("place", [input], [made], lambda grads, saved, needs: [take_region(grads[0], region)])
    return made


def take_region(input: T, region: Region) -> T:
    whole, shape = contiguous(input), input.shape
    made: T = whole.as_strided(region[0], region[1], whole.offset + region[2])
    tape.add_node(
        "take_region", [whole], [made], lambda grads, saved, needs: [place(grads[0], shape, region)]
    )
    return made


@export()
def index(input: T, key: Any) -> T:
    """A view of a part: ints, slices with positive steps, ``None`` and ``...``.

    Raises:
        ArgumentError: the index is of another kind, or out of range.
    """
    shape = input.shape
    view: T = input.as_strided(*indexing.basic(key, shape, input.strides, input.offset))
    tape.add_node(
        "index", [input], [view], lambda grads, saved, needs: [index_backward(grads[0], key, shape)]
    )
    return view


_index = index  # where a parameter has that name


def _index_backward_shape(input: TensorBase, key: Any, shape: Shape) -> Result:
    wanted = tuple(shape)
    selected = indexing.basic(key, wanted, contiguous_strides(wanted), 0)[0]
    if selected != input.shape:
        raise ShapeError(
            f"[index_backward] {key} selects shape {selected} of {wanted}, the gradient has {input.shape}"
        )
    return wanted, input.dtype


def _index_backward_run(out: TensorBase, input: TensorBase, key: Any, shape: Shape) -> None:
    fill_with(out, 0)
    copy_into(out.as_strided(*indexing.basic(key, out.shape, out.strides, out.offset)), input)


@export()
@op(
    infer=_index_backward_shape,
    kernel=Kernel(_index_backward_run, tuple(by_size[4] for by_size in COPY.values()), MOVABLE_DTYPES),
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
def index_backward(input: Array, key: Any, shape: Any) -> Array:
    """The gradient of :func:`index`: zeros of a shape, with `input` in the part that `key` selects.

    Args:
        input: of the shape that `key` selects, of any dtype.
        key: ints, slices with positive steps, None and ``...``.
        shape: of what was indexed.

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
    whole = np.zeros(shape, input.dtype)
    whole[key] = input
    return whole
