"""Views: tensors of other shapes on the same memory, and their gradients, which are views as well."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeVar, overload

import numpy as np

from dl4all.errors import ArgumentError, ShapeError
from dl4all.ops.core import strides as layout
from dl4all.ops.core import tape
from dl4all.ops.core.dtypes import checked_dtype
from dl4all.ops.core.exports import export
from dl4all.ops.core.memory_format import MemoryFormat, check_memory_format
from dl4all.ops.core.op import primitives
from dl4all.ops.core.tensor_base import (
    Dims,
    DTypeLike,
    Shape,
    TensorBase,
    contiguous_strides,
)
from dl4all.ops.elementwise.arithmetic import clone
from dl4all.ops.memory.copy import fresh_copy
from dl4all.scheduler import listeners

T = TypeVar("T", bound=TensorBase)

DTYPE_CLASSES = (np.dtype, type, str)
"""Types of objects that name a dtype."""


@export("Tensor")
def contiguous(input: T, memory_format: MemoryFormat = None) -> T:
    """The tensor itself if its elements lie in row-major order, else a copy in which they do.

    A `memory_format` is taken for PyTorch's sake, see :class:`dl4all.memory_format`.

    Example:
        >>> import dl4all as dl
        >>> dl.tensor([[1, 2], [3, 4]]).T.contiguous().stride()
        (2, 1)
    """
    if memory_format is not None:
        check_memory_format("contiguous", memory_format)
    if input.is_contiguous():
        return input
    copied: T
    if input.dtype == np.float32 or input.device.is_host:
        copied = clone(input)
        return copied
    copied = fresh_copy(input)  # type: ignore[assignment]
    tape.add_node("contiguous", [input], [copied], lambda grads, saved, needs: [grads[0]])
    return copied


@overload
def reshape(input: T, *shape: int | Shape) -> T: ...
@overload
def reshape(input: T, *, shape: Shape) -> T: ...
@export("dl", "Tensor")
def reshape(input: T, *args: int | Shape, **named: Shape) -> T:
    """The same elements in another shape; one size may be -1. A view where strides allow it, else a copy.

    Raises:
        ShapeError: the numbers of elements differ.

    Example:
        >>> import dl4all as dl
        >>> dl.tensor([1.0, 2.0, 3.0, 4.0]).reshape(2, -1).tolist()
        [[1.0, 2.0], [3.0, 4.0]]
    """
    old_shape = input.shape
    wanted = layout.named_sizes("reshape", args, named, "shape") if named else layout.sizes("reshape", args)
    new_shape = layout.complete_shape(wanted, old_shape)
    strides = layout.view_strides(old_shape, input.strides, new_shape)
    if strides is None:
        input, strides = contiguous(input), contiguous_strides(new_shape)
    result: T = input.strided_view(new_shape, strides, input.offset)
    tape.add_node("reshape", [input], [result], lambda grads, saved, needs: [_reshaped(grads[0], old_shape)])
    return result


primitives.reshape = reshape


def in_shape(input: T, *shape: int) -> T:
    """The tensor itself if it has the shape, else :func:`reshape` without a -1: for ops that need no view."""
    return input if input.shape == shape else reshape(input, shape)


def _reshaped(gradient: T, shape: Shape) -> T:
    """The gradient in another shape; contiguous in a capture, as graphs join the copy with other work."""
    return reshape(contiguous(gradient) if listeners.captured() else gradient, shape)


@export("Tensor")
def reshape_as(input: T, other: TensorBase) -> T:
    """:func:`reshape` to the shape of another tensor."""
    return reshape(input, other.shape)


@overload
def view(input: T, *size: int | Shape) -> T: ...
@overload
def view(input: T, *, size: Shape) -> T: ...
@overload
def view(input: T, dtype: DTypeLike) -> T: ...
@export("Tensor")
def view(input: T, *args: Any, **named: Any) -> T:
    """:func:`reshape`, never with a copy: the result shares the memory of `input`.

    With a dtype in place of sizes the same bits are read as elements of that dtype, without a gradient; the
    last axis shrinks or grows by the ratio of their sizes.

    Raises:
        ShapeError: the numbers of elements differ, or the strides do not allow it.
        DTypeError: tensors cannot have the dtype.

    Example:
        >>> import dl4all as dl
        >>> dl.tensor([1.0, -2.0]).view(dl.int32).tolist()
        [1065353216, -1073741824]
    """
    if named:
        if "dtype" in named:
            return _view_as_dtype(input, named["dtype"])
        args = layout.named_sizes("view", args, named, "size")
    elif len(args) == 1 and args[0].__class__ is not int and isinstance(args[0], DTYPE_CLASSES):
        return _view_as_dtype(input, args[0])
    old_shape = input.shape
    new_shape = layout.complete_shape(layout.sizes("view", args), old_shape, "view")
    strides = layout.view_strides(old_shape, input.strides, new_shape)
    if strides is None:
        raise ShapeError(
            f"[view] a tensor of shape {old_shape} and strides {input.strides} has no view of shape "
            f"{new_shape}; use .reshape(), which copies"
        )
    result: T = input.strided_view(new_shape, strides, input.offset)
    tape.add_node("view", [input], [result], lambda grads, saved, needs: [_reshaped(grads[0], old_shape)])
    return result


def _view_as_dtype(input: T, dtype: Any) -> T:
    """The bits of a tensor as elements of another dtype.

    Raises:
        DTypeError: tensors cannot have it.
        ShapeError: the last axis does not hold a whole number of its elements side by side.
    """
    wanted = checked_dtype("view", dtype)
    old, new = input.dtype.itemsize, wanted.itemsize
    shape, strides, offset = list(input.shape), list(input.strides), input.offset
    if old != new:
        fits = bool(shape) and strides[-1] == 1
        if fits and new > old:
            ratio = new // old
            fits = not any(number % ratio for number in (shape[-1], offset, *strides[:-1]))
        if not fits:
            raise ShapeError(
                f"[view] a tensor of shape {input.shape}, strides {input.strides} and {input.dtype} has no "
                f"view as {wanted}; use .contiguous(), with a last axis of whole elements"
            )
        shape[-1] = shape[-1] * old // new
        strides = [*(stride * old // new for stride in strides[:-1]), 1]
        offset = offset * old // new
    result: T = input.strided_view(tuple(shape), tuple(strides), offset)
    result.dtype = wanted
    return result


@export("Tensor")
def view_as(input: T, other: TensorBase) -> T:
    """:func:`view` with the shape of another tensor.

    Example:
        >>> import dl4all as dl
        >>> dl.arange(4).view_as(dl.ones(2, 2)).tolist()
        [[0, 1], [2, 3]]
    """
    return view(input, other.shape)


@export("dl", "Tensor")
def unflatten(input: T, dim: int, sizes: Shape) -> T:
    """The axis `dim` split into several axes of the given sizes, of which one may be -1.

    Example:
        >>> import dl4all as dl
        >>> dl.unflatten(dl.arange(6), 0, (2, 3)).tolist()
        [[0, 1, 2], [3, 4, 5]]
    """
    axis = layout.axis("unflatten", dim, len(input.shape))
    parts = layout.complete_shape(layout.sizes("unflatten", (sizes,)), (input.shape[axis],), "unflatten")
    return reshape(input, *input.shape[:axis], *parts, *input.shape[axis + 1 :])


@export("dl", "Tensor")
def flatten(input: T, start_dim: int = 0, end_dim: int = -1) -> T:
    """The axes from `start_dim` to `end_dim` merged into one; the tensor itself where that is one axis.

    Example:
        >>> import dl4all as dl
        >>> dl.flatten(dl.ones(2, 3, 4), 1).shape
        (2, 12)
    """
    shape = input.shape
    if not shape:
        return reshape(input, 1)
    start, end = (layout.axis("flatten", dim, len(shape)) for dim in (start_dim, end_dim))
    if start > end:
        raise ArgumentError(f"[flatten] start_dim {start_dim} comes after end_dim {end_dim}")
    if start == end:
        return input
    return reshape(input, *shape[:start], math.prod(shape[start : end + 1]), *shape[end + 1 :])


@export("dl", "Tensor")
def squeeze(input: T, dim: Dims = None) -> T:
    """A view without the axes of size 1: all of them, or those among `dim`.

    Example:
        >>> import dl4all as dl
        >>> dl.squeeze(dl.ones(1, 3, 1)).shape
        (3,)
    """
    shape = input.shape
    if dim is None:
        return _without_axes(input, [i for i, size in enumerate(shape) if size == 1])
    axes = {layout.axis("squeeze", d, max(len(shape), 1)) for d in layout.sizes("squeeze", (dim,))}
    return _without_axes(input, sorted(axis for axis in axes if shape and shape[axis] == 1))


@export("dl", "Tensor")
def unsqueeze(input: T, dim: int) -> T:
    """A view with an axis of size 1 inserted before axis `dim`.

    Example:
        >>> import dl4all as dl
        >>> dl.unsqueeze(dl.ones(3), 0).shape
        (1, 3)
    """
    return _with_axes(input, [layout.axis("unsqueeze", dim, len(input.shape) + 1)])


def _without_axes(input: T, axes: Sequence[int]) -> T:
    """A view without some axes of size 1, ascending."""
    shape, strides = list(input.shape), list(input.strides)
    for axis in reversed(axes):
        del shape[axis], strides[axis]
    result: T = input.strided_view(tuple(shape), tuple(strides), input.offset)
    tape.add_node("squeeze", [input], [result], lambda grads, saved, needs: [_with_axes(grads[0], axes)])
    return result


def _with_axes(input: T, axes: Sequence[int]) -> T:
    """A view with new axes of size 1 at these places, ascending."""
    shape, strides = list(input.shape), list(input.strides)
    for axis in axes:
        shape.insert(axis, 1)
        strides.insert(axis, 0)
    result: T = input.strided_view(tuple(shape), tuple(strides), input.offset)
    tape.add_node("unsqueeze", [input], [result], lambda grads, saved, needs: [_without_axes(grads[0], axes)])
    return result


@overload
def permute(input: T, *dims: int | Shape) -> T: ...
@overload
def permute(input: T, *, dims: Shape) -> T: ...
@export("dl", "Tensor")
def permute(input: T, *args: int | Shape, **named: Shape) -> T:
    """A view with the axes in another order.

    Raises:
        ArgumentError: `dims` does not name every axis once.

    Example:
        >>> import dl4all as dl
        >>> dl.permute(dl.ones(2, 3, 4), (2, 0, 1)).shape
        (4, 2, 3)
    """
    ndim = len(input.shape)
    listed = layout.named_sizes("permute", args, named, "dims") if named else layout.sizes("permute", args)
    order = [layout.axis("permute", dim, ndim) for dim in listed]
    if sorted(order) != list(range(ndim)):
        raise ArgumentError(f"[permute] {listed} does not name each axis of {input.shape} once")
    return in_order(input, order)


def in_order(input: T, order: Sequence[int]) -> T:
    """A view with the axes in an order that names each of them once."""
    shape, strides = input.shape, input.strides
    result: T = input.strided_view(
        tuple([shape[d] for d in order]), tuple([strides[d] for d in order]), input.offset
    )
    tape.add_node(
        "permute", [input], [result], lambda grads, saved, needs: [in_order(grads[0], inverse(order))]
    )
    return result


def inverse(order: Sequence[int]) -> list[int]:
    """The order that undoes another one.

    >>> inverse([2, 0, 1])
    [1, 2, 0]
    """
    return sorted(range(len(order)), key=order.__getitem__)


@export("dl", "Tensor", aliases=("swapdims",))
def transpose(input: T, dim0: int, dim1: int) -> T:
    """A view with two axes swapped.

    Example:
        >>> import dl4all as dl
        >>> dl.transpose(dl.tensor([[1, 2], [3, 4]]), 0, 1).tolist()
        [[1, 3], [2, 4]]
    """
    ndim = len(input.shape)
    first, second = (layout.axis("transpose", d, ndim or 1) for d in (dim0, dim1))
    order = list(range(ndim))
    if order:
        order[first], order[second] = second, first
    return in_order(input, order)


@export("dl", "Tensor")
def swapaxes(input: T, axis0: int, axis1: int) -> T:
    """:func:`transpose`, under NumPy's name.

    Example:
        >>> import dl4all as dl
        >>> dl.swapaxes(dl.zeros(2, 3, 5), axis0=0, axis1=2).shape
        (5, 3, 2)
    """
    return transpose(input, axis0, axis1)


@export("dl", "Tensor", aliases=("moveaxis",))
def movedim(input: T, source: int | Shape, destination: int | Shape) -> T:
    """A view with the axes `source` moved to the positions `destination`; the others keep their order.

    Raises:
        ArgumentError: an axis is named twice, or the numbers of axes differ.

    Example:
        >>> import dl4all as dl
        >>> dl.movedim(dl.ones(2, 3, 4), 0, 2).shape
        (3, 4, 2)

    Example:
        >>> import dl4all as dl
        >>> dl.moveaxis(dl.ones(2, 3, 4), 0, 2).shape
        (3, 4, 2)
    """
    ndim = max(len(input.shape), 1)
    old, new = (
        [layout.axis("movedim", d, ndim) for d in layout.sizes("movedim", (dims,))]
        for dims in (source, destination)
    )
    if len(old) != len(new) or len(set(old)) != len(old) or len(set(new)) != len(new):
        raise ArgumentError(f"[movedim] {source} and {destination} must name as many axes, each of them once")
    others = iter([axis for axis in range(ndim) if axis not in old])
    moved = dict(zip(new, old, strict=True))
    order = [moved[i] if i in moved else next(others) for i in range(ndim)]
    return in_order(input, order[: len(input.shape)])


@overload
def expand(input: T, *size: int | Shape) -> T: ...
@overload
def expand(input: T, *, size: Shape) -> T: ...
@export("Tensor")
def expand(input: T, *args: int | Shape, **named: Shape) -> T:
    """A view in which axes of size 1 are repeated without copying; -1 keeps a size.

    Raises:
        ShapeError: an axis whose size is not 1 would change.

    Example:
        >>> import dl4all as dl
        >>> dl.tensor([[1], [2]]).expand(2, 3).tolist()
        [[1, 1, 1], [2, 2, 2]]
    """
    old_shape = input.shape
    wanted = layout.named_sizes("expand", args, named, "size") if named else layout.sizes("expand", args)
    new_shape, strides = layout.expanded(wanted, old_shape, input.strides)
    result: T = input.strided_view(new_shape, strides, input.offset)
    tape.add_node("expand", [input], [result], lambda grads, saved, needs: [_summed_to(grads[0], old_shape)])
    return result


def _summed_to(gradient: T, shape: Shape) -> T:
    summed: T = gradient if gradient.shape == shape else primitives.sum_to(gradient, shape)
    return summed


@export("Tensor")
def expand_as(input: T, other: TensorBase) -> T:
    """:func:`expand` to the shape of another tensor.

    Example:
        >>> import dl4all as dl
        >>> dl.tensor([1, 2]).expand_as(dl.ones(2, 2)).tolist()
        [[1, 2], [1, 2]]
    """
    return expand(input, other.shape)


@export("dl", "Tensor")
def broadcast_to(input: T, size: Shape) -> T:
    """A view of shape `size`: axes of size 1 and new axes in front repeat the elements.

    Example:
        >>> import dl4all as dl
        >>> dl.broadcast_to(dl.tensor([1, 2]), (2, 2)).tolist()
        [[1, 2], [1, 2]]
    """
    return expand(input, size)
