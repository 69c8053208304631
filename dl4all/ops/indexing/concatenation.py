"""Concatenation, stacking and splitting of tensors."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

from dl4all.errors import ArgumentError, DTypeError, ShapeError
from dl4all.ops.core import strides, tape
from dl4all.ops.core.arguments import named_cpu
from dl4all.ops.core.arguments.mixed_devices import on_one_device
from dl4all.ops.core.exports import export
from dl4all.ops.core.kernels.host_work import WorkKernel, host_work
from dl4all.ops.core.limits import PARTS, integer
from dl4all.ops.core.op import primitives
from dl4all.ops.core.tensor_base import Shape, TensorBase
from dl4all.ops.core.vmap_hook import BatchedTensorBase
from dl4all.ops.elementwise.declare import promote
from dl4all.ops.indexing.indices import untracked_view
from dl4all.ops.memory.copy import copy_into, fill_with, new_like
from dl4all.ops.memory.views import reshape, unsqueeze

T = TypeVar("T", bound=TensorBase)
EMPTY_SHAPE = (0,)
"""Tensors of this shape may stand among any others in cat, as in PyTorch."""


@export("dl", aliases=("concat", "concatenate"), out=True)
def cat(tensors: Sequence[T], dim: int = 0) -> T:
    """Concatenate tensors along axis `dim`, in their common dtype.

    Args:
        tensors: at least one; their shapes differ at most along `dim`. Tensors of shape (0,) are left out.
        dim: the axis.

    Raises:
        ShapeError: the shapes do not fit.
        ArgumentError: there is no tensor, or they live on different devices.
        DTypeError: an element is no tensor.

    Example:
        >>> import dl4all as dl
        >>> dl.cat([dl.ones(1, 2), dl.zeros(2, 2)]).tolist()
        [[1.0, 1.0], [0.0, 0.0], [0.0, 0.0]]
    """
    tensors = _checked_list("cat", tensors)
    first = next((tensor for tensor in tensors if tensor.shape != EMPTY_SHAPE), tensors[0])
    axis = strides.axis("cat", dim, len(first.shape))
    before, after = first.shape[:axis], first.shape[axis + 1 :]
    sizes: list[int] = []
    for tensor in tensors:
        shape = tensor.shape
        if shape == EMPTY_SHAPE:
            sizes.append(0)
            continue
        if len(shape) != len(first.shape) or shape[:axis] != before or shape[axis + 1 :] != after:
            raise ShapeError(f"[cat] shapes {first.shape} and {shape} must be equal but for axis {axis}")
        sizes.append(shape[axis])
    result = _joined("cat", tensors, (*before, sum(sizes), *after), sizes, axis)
    operands = [(tensor.dtype, tensor.shape) for tensor in tensors]

    def backward(grads: Any, saved: Any, needs: tuple[bool, ...]) -> list[Any]:
        return [
            _cast(reshape(part, 0) if shape == EMPTY_SHAPE else part, dtype) if needed else None
            for part, (dtype, shape), needed in zip(
                split(grads[0], sizes, axis), operands, needs, strict=True
            )
        ]

    tape.add_node("cat", tensors, [result], backward)
    return result


def _joined(name: str, parts: Sequence[T], shape: Shape, sizes: Sequence[int], axis: int) -> T:
    """The parts one after another along an axis, where they have these sizes; without a history."""
    first = parts[0]
    same = all(part.dtype == first.dtype for part in parts)
    result: T = new_like(first, shape, first.dtype if same else promote(name, parts, "common"))
    if same and first.device.is_cpu and not isinstance(first, BatchedTensorBase):
        _concatenate_on_host(result, [part for part in parts if 0 not in part.shape], axis)
        named_cpu.pass_on(parts, result)
        return result
    start = 0
    for part, size in zip(parts, sizes, strict=True):
        if size:
            copy_into(untracked_view(result, (*(strides.ALL,) * axis, slice(start, start + size))), part)
        start += size
    return result


def _concatenate_on_host(result: TensorBase, parts: Sequence[TensorBase], axis: int) -> None:
    """Write tensors of one dtype along an axis of a new tensor of the CPU."""
    if 0 not in result.shape:
        kernel = WorkKernel("cat", (axis,))
        host_work("cat", functools.partial(_concatenate, axis), parts, [result], kernel=kernel)


def _concatenate(axis: int, *arrays: Any) -> None:
    """Write all arrays but the last one into that."""
    np.concatenate(arrays[:-1], axis, out=arrays[-1])


def _checked_list(name: str, tensors: Sequence[T]) -> list[T]:
    """The tensors as a list; under vmap, all of them as batched tensors of the same levels.

    Raises:
        DTypeError: an element is no tensor.
        ArgumentError: the list is empty, or the devices differ.
    """
    if isinstance(tensors, TensorBase):
        raise DTypeError(f"[{name}] expected a list of tensors, got one tensor")
    parts = list(tensors)
    for part in parts:
        if not isinstance(part, TensorBase):
            raise DTypeError(f"[{name}] expected a list of tensors, got a {type(part).__name__} in it")
    if not parts:
        raise ArgumentError(f"[{name}] expected at least one tensor, got none")
    if any(part.device is not parts[0].device for part in parts):
        parts = on_one_device(name, parts, scalars=False)
    for part in parts:
        if isinstance(part, BatchedTensorBase):
            parts = part.match_levels(parts)
    return parts


def _cast(tensor: TensorBase, dtype: np.dtype[Any]) -> TensorBase:
    result: TensorBase = tensor if tensor.dtype == dtype else primitives.cast(tensor, dtype.name)
    return result


@export("dl", out=True)
def stack(tensors: Sequence[T], dim: int = 0) -> T:
    """Stack tensors of one shape along a new axis `dim`.

    Raises:
        ShapeError: the shapes differ.
        ArgumentError, DTypeError: as for :func:`cat`.

    Example:
        >>> import dl4all as dl
        >>> dl.stack([dl.tensor([1.0, 2.0]), dl.tensor([3.0, 4.0])], dim=1).tolist()
        [[1.0, 3.0], [2.0, 4.0]]
    """
    tensors = _checked_list("stack", tensors)
    for tensor in tensors:
        if tensor.shape != tensors[0].shape:
            raise ShapeError(f"[stack] shapes {tensors[0].shape} and {tensor.shape} must be equal")
    axis = strides.axis("stack", dim, len(tensors[0].shape) + 1)
    shape, dtypes = tensors[0].shape, [tensor.dtype for tensor in tensors]
    row, whole = (*shape[:axis], 1, *shape[axis:]), (*shape[:axis], len(tensors), *shape[axis:])
    result: T
    if (
        not axis and shape and not isinstance(tensors[0], BatchedTensorBase)
    ):  # one after another, without views
        flat = _joined("stack", tensors, (len(tensors) * shape[0], *shape[1:]), [shape[0]] * len(tensors), 0)
        result = type(flat).result_class(flat.storage, whole, flat.dtype, flat.device)  # type: ignore[assignment]
    else:
        parts = [t.strided_view(row, (*t.strides[:axis], 0, *t.strides[axis:]), t.offset) for t in tensors]
        result = _joined("stack", parts, whole, [1] * len(parts), axis)

    def backward(grads: Any, saved: Any, needs: tuple[bool, ...]) -> list[Any]:
        return [
            _cast(part, dtype) if needed else None
            for part, dtype, needed in zip(unbind(grads[0], axis), dtypes, needs, strict=True)
        ]

    tape.add_node("stack", tensors, [result], backward)
    return result


def prepend_axes(tensor: T, ndim: int) -> T:
    """The tensor with axes of size 1 in front, until it has `ndim` axes."""
    missing = max(ndim - len(tensor.shape), 0)
    return reshape(tensor, (*(1,) * missing, *tensor.shape)) if missing else tensor


@export("dl", out=True)
def hstack(tensors: Sequence[T]) -> T:
    """:func:`cat` along the second axis; along the first one if the tensors are 1-d."""
    rows = [prepend_axes(tensor, 1) for tensor in _checked_list("hstack", tensors)]
    return cat(rows, 0 if len(rows[0].shape) == 1 else 1)


@export("dl", aliases=("row_stack",), out=True)
def vstack(tensors: Sequence[T]) -> T:
    """:func:`cat` along the first axis; a 1-d tensor counts as a row."""
    return cat([prepend_axes(tensor, 2) for tensor in _checked_list("vstack", tensors)], 0)


@export("dl", "Tensor")
def split(tensor: T, split_size_or_sections: int | Sequence[int], dim: int = 0) -> tuple[T, ...]:
    """Split axis `dim` into parts, which are views.

    Args:
        tensor: a tensor.
        split_size_or_sections: the size of each part, of which the last may be smaller, or a list of
            all sizes.
        dim: the axis.

    Raises:
        ArgumentError: a size is negative, the sizes do not add up to that of the axis, or there are too many.

    Example:
        >>> import dl4all as dl
        >>> [part.tolist() for part in dl.split(dl.arange(5), 2)]
        [[0, 1], [2, 3], [4]]
    """
    axis = strides.axis("split", dim, len(tensor.shape))
    size = tensor.shape[axis]
    if not isinstance(split_size_or_sections, (tuple, list)):
        part = integer("split", "the size of a part", split_size_or_sections)
        if part < 0 or (part == 0 and size):
            raise ArgumentError(f"[split] the size of a part must be positive, got {part}")
        integer("split", "the number of parts", -(-size // (part or 1)), most=PARTS)
        sections = [min(part, size - start) for start in range(0, size, part or 1)] or [0]
    else:
        sections = list(strides.sizes("split", (tuple(split_size_or_sections),)))
        if min(sections, default=0) < 0 or sum(sections) != size:
            raise ArgumentError(f"[split] sizes {sections} do not add up to {size}, that of axis {axis}")
    shape, steps, start = tensor.shape, tensor.strides, tensor.offset
    parts: list[T] = []
    for n in sections:
        part_shape = (*shape[:axis], n, *shape[axis + 1 :])
        parts.append(tensor.strided_view(part_shape, steps, start if n else tensor.offset))
        start += n * steps[axis]
    _join_gradients("split", tensor, parts, axis, sections)
    return tuple(parts)


def _join_gradients(
    name: str, input: T, parts: Sequence[T], axis: int, sizes: Sequence[int], *, removed: bool = False
) -> None:
    """Add one node for all parts of a tensor, so that their gradients are put together and not added up.

    Args:
        name: the op's.
        input, parts: a tensor, and views that show its elements one after another along an axis.
        axis: that axis.
        sizes: those of the parts along it.
        removed: whether the parts are without it.
    """
    shape = input.shape

    def backward(grads: Any, saved: Any, needs: Any) -> list[Any]:
        like = next(g for g in grads if g is not None)
        pieces: list[Any] = []
        pairs = zip(grads, sizes, strict=True)
        for missing, group in itertools.groupby(pairs, lambda pair: pair[0] is None):
            if missing:
                pieces.append(new_like(like, (*shape[:axis], sum(n for _, n in group), *shape[axis + 1 :])))
                fill_with(pieces[-1], 0)
            else:
                pieces += [unsqueeze(g, axis) if removed else g for g, _ in group]
        joined = None if tape.state.enabled else _adjacent(pieces, axis)
        return [cat(pieces, axis) if joined is None else joined]

    tape.add_node(name, [input], parts, backward)


def _adjacent(parts: Sequence[T], axis: int) -> T | None:
    """The parts put together along an axis, as a view, if they lie like that in one piece of memory."""
    first = parts[0]
    if len(parts) == 1:
        return first
    if isinstance(first, BatchedTensorBase):
        return None
    step = (parts[1].offset - first.offset) // (first.shape[axis] or 1)
    expected = (*first.strides[:axis], step, *first.strides[axis + 1 :])
    start = first.offset
    for part in parts:
        own = list(part.strides)
        if part.shape[axis] == 1:  # its stride there says nothing
            own[axis] = step
        if part.storage is not first.storage or tuple(own) != expected or part.offset != start:
            return None
        start += part.shape[axis] * step
    shape = (*first.shape[:axis], sum(part.shape[axis] for part in parts), *first.shape[axis + 1 :])
    joined: T = first.strided_view(shape, expected, first.offset)
    return joined


@export("dl", "Tensor")
def chunk(input: T, chunks: int, dim: int = 0) -> tuple[T, ...]:
    """Split axis `dim` into at most `chunks` views of one size, of which the last may be smaller.

    Raises:
        ArgumentError: `chunks` is not positive, or too large.

    Example:
        >>> import dl4all as dl
        >>> [part.tolist() for part in dl.chunk(dl.arange(5), 2)]
        [[0, 1, 2], [3, 4]]
    """
    if integer("chunk", "the number of parts", chunks) < 1:
        raise ArgumentError(f"[chunk] expected at least one part, got {chunks}")
    size = input.shape[strides.axis("chunk", dim, len(input.shape))]
    if size:
        return split(input, -(-size // chunks), dim)
    return split(input, [0] * integer("chunk", "the number of parts", chunks, most=PARTS), dim)


@export("dl", "Tensor")
def unbind(input: T, dim: int = 0) -> tuple[T, ...]:
    """Split axis `dim` into views of size 1, and remove it from them.

    Example:
        >>> import dl4all as dl
        >>> [row.tolist() for row in dl.unbind(dl.tensor([[1, 2], [3, 4]]))]
        [[1, 2], [3, 4]]
    """
    axis = strides.axis("unbind", dim, len(input.shape))
    shape, steps = input.shape, input.strides
    size, step = integer("unbind", "the number of parts", shape[axis], most=PARTS), steps[axis]
    part_shape, part_strides = (*shape[:axis], *shape[axis + 1 :]), (*steps[:axis], *steps[axis + 1 :])
    parts = [input.strided_view(part_shape, part_strides, input.offset + i * step) for i in range(size)]
    _join_gradients("unbind", input, parts, axis, [1] * size, removed=True)
    return tuple(parts)
