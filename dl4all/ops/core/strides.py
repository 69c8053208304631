"""Arithmetic on shapes, strides and offsets, for views."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dl4all.errors import ArgumentError, ShapeError
from dl4all.ops.core.limits import INTEGERS, VIEW_ELEMENTS, check_view
from dl4all.ops.core.tensor_base import Shape, TensorBase, contiguous_strides, host_int

ALL = slice(None)
"""The index of a whole axis."""


def sizes(op: str, args: tuple[Any, ...]) -> Shape:
    """Sizes or axes as a tuple of ints; ``f(2, 3)`` and ``f((2, 3))`` mean the same.

    >>> sizes("zeros", ((2, 3),))
    (2, 3)

    Raises:
        ArgumentError: one of them is not an int, or of more than 64 bits.
    """
    values: Any = args[0] if len(args) == 1 and isinstance(args[0], (tuple, list)) else args
    for size in values:
        if type(size) is not int or not -INTEGERS <= size < INTEGERS:
            return _converted_sizes(op, values)
    return tuple(values)


def named_sizes(op: str, args: tuple[Any, ...], named: dict[str, Any], keyword: str) -> Shape:
    """:func:`sizes` of a function that takes them as one keyword too, where there is a keyword.

    >>> named_sizes("permute", (), {"dims": (1, 0)}, "dims")
    (1, 0)

    Raises:
        TypeError: there is another keyword, or there are sizes by position besides.
    """
    if args or set(named) != {keyword}:
        unknown = next((name for name in named if name != keyword), keyword)
        raise TypeError(f"{op}() got an unexpected keyword argument {unknown!r}")
    return sizes(op, (named[keyword],))


def _converted_sizes(op: str, values: Any) -> Shape:
    """Sizes of which some are NumPy's integers or tensors of one, or none that are allowed."""
    values = tuple(host_int(size) for size in ((values,) if isinstance(values, TensorBase) else values))
    if not all(isinstance(size, (int, np.integer)) for size in values):
        raise ArgumentError(f"[{op}] expected ints, got {values}")
    result = tuple(int(size) for size in values)
    if result and (max(result) >= INTEGERS or min(result) < -INTEGERS):
        raise ArgumentError(f"[{op}] expected ints of 64 bits, got {values}")
    return result


def axis(op: str, dim: int, ndim: int) -> int:
    """Normalize an axis: count negative ones from the front.

    >>> axis("sum", -1, 3)
    2

    Raises:
        ArgumentError: the axis is no int, or out of range.
    """
    if not isinstance(dim, (int, np.integer)) and not isinstance(dim := host_int(dim), int):
        raise ArgumentError(f"[{op}] an axis must be an int, got {dim!r}")
    if not -ndim <= dim < ndim:
        raise ArgumentError(f"[{op}] axis {dim} is out of range for {ndim} axes")
    return dim % ndim


def complete_shape(wanted: Shape, shape: Shape, op: str = "reshape") -> Shape:
    """`wanted` with its -1 replaced by the size that gives as many elements as `shape` has.

    >>> complete_shape((3, -1), (2, 3, 4))
    (3, 8)

    Raises:
        ShapeError: the numbers of elements differ, or -1 is not determined.
        ArgumentError: there are no elements, and the sizes are too large all the same.
    """
    total = math.prod(shape)
    if -1 in wanted:
        known = math.prod([size for size in wanted if size != -1])
        if wanted.count(-1) == 1 and known > 0 and total % known == 0:
            wanted = tuple([total // known if size == -1 else size for size in wanted])
    if math.prod(wanted) != total or (wanted and min(wanted) < 0):
        raise ShapeError(f"[{op}] {total} elements of shape {shape} do not fill shape {wanted}")
    return wanted if total else check_view(op, wanted)


def view_strides(shape: Shape, strides: Shape, wanted: Shape) -> Shape | None:
    """The strides of a view of another shape on the same elements; None if only a copy has that shape.

    >>> view_strides((2, 3, 4), (24, 4, 1), (2, 12))
    (24, 1)
    >>> view_strides((2, 3), (1, 2), (6,)) is None
    True
    """
    if 0 in shape or strides == contiguous_strides(shape):
        return contiguous_strides(wanted)
    # Merge axes of the old shape, from the last on, that have the memory layout of a single axis.
    blocks: list[tuple[int, int]] = []
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if size == 1:
            continue
        if blocks and stride == blocks[-1][0] * blocks[-1][1]:
            blocks[-1] = (blocks[-1][0] * size, blocks[-1][1])
        else:
            blocks.append((size, stride))
    result: list[int] = []
    left, step = (1, 1) if not blocks else blocks.pop(0)
    for size in reversed(wanted):
        if left == 1 and size != 1 and blocks:
            left, step = blocks.pop(0)
        if left % size:
            return None
        result.append(step)
        left, step = left // size, step * size
    return tuple(reversed(result))


def diagonal(shape: Shape, strides: Shape, start: int, offset: int, dim1: int, dim2: int) -> Any:
    """Shape, strides and offset of the view of a diagonal; `start` is the offset of the tensor."""
    rows, columns = shape[dim1], shape[dim2]
    length = max(min(rows, columns - offset) if offset >= 0 else min(rows + offset, columns), 0)
    if length:
        start += offset * strides[dim2] if offset >= 0 else -offset * strides[dim1]
    rest = [axis for axis in range(len(shape)) if axis not in (dim1, dim2)]
    return (
        (*(shape[axis] for axis in rest), length),
        (*(strides[axis] for axis in rest), strides[dim1] + strides[dim2]),
        start,
    )


def expanded(wanted: Shape, shape: Shape, strides: Shape) -> tuple[Shape, Shape]:
    """Shape and strides of a view in which axes of size 1 are repeated.

    Raises:
        ShapeError: an axis of another size would have to be repeated.
        ArgumentError: there would be more elements than can be counted.
    """
    missing = len(wanted) - len(shape)
    if missing < 0 or -1 in wanted[:missing]:
        raise _no_expansion(shape, wanted)
    result, steps = list(wanted), [0] * len(wanted)
    for axis, (size, stride) in enumerate(zip(shape, strides, strict=True), missing):
        if result[axis] in (-1, size):
            result[axis], steps[axis] = size, stride
        elif size != 1:
            raise _no_expansion(shape, wanted)
    if result and min(result) < 0:
        raise _no_expansion(shape, wanted)
    if 0 in result or math.prod(result) >= VIEW_ELEMENTS:
        check_view("expand", tuple(result))
    return tuple(result), tuple(steps)


def _no_expansion(shape: Shape, wanted: Shape) -> ShapeError:
    return ShapeError(f"[expand] shape {shape} does not expand to {wanted}: only axes of size 1 repeat")


def basic(key: Any, shape: Shape, strides: Shape, offset: int) -> tuple[Shape, Shape, int]:
    """Shape, strides and offset of the view that an index of ints, slices, None and ... selects.

    Raises:
        ArgumentError: the index is of another kind, or out of range.
    """
    sizes: list[int] = []
    steps: list[int] = []
    axis = 0
    for k in _whole_key(key, shape):
        if k is None:
            sizes.append(1)
            steps.append(0)
            continue
        size, stride = shape[axis], strides[axis]
        if isinstance(k, slice):
            if k.start is None and k.stop is None and k.step is None:
                sizes.append(size)
                steps.append(stride)
            else:
                span = _span(k, size)
                offset += span.start * stride if span else 0
                sizes.append(len(span))
                steps.append(stride * span.step if len(span) > 1 else stride)
        elif isinstance(k, (int, np.integer)) and not isinstance(k, bool):
            if not -size <= k < size:
                raise ArgumentError(f"[index] {k} is out of range for axis {axis} of shape {shape}")
            offset += (int(k) % size) * stride
        else:
            raise ArgumentError(
                f"[index] {k!r} is not an int, a slice, None or ...; index .numpy() for other kinds"
            )
        axis += 1
    return (*sizes, *shape[axis:]), (*steps, *strides[axis:]), offset


def _whole_key(key: Any, shape: Shape) -> Sequence[Any]:
    """The entries of a key with ... written out; there may be fewer than axes.

    Raises:
        ArgumentError: there are too many.
    """
    keys = key if isinstance(key, tuple) else (key,)
    added = ellipses = 0
    for k in keys:
        if k is None:
            added += 1
        elif k is Ellipsis:
            ellipses += 1
    indexed = len(keys) - added - ellipses
    if ellipses > 1 or indexed > len(shape):
        raise ArgumentError(f"[index] {key} selects more axes than shape {shape} has")
    if not ellipses:
        return keys
    position = next(i for i, k in enumerate(keys) if k is Ellipsis)
    return (*keys[:position], *(ALL,) * (len(shape) - indexed), *keys[position + 1 :])


def _span(part: slice, size: int) -> range:
    """The indices that a slice selects of an axis.

    Raises:
        ArgumentError: its step is not positive, or something in it is no int.
    """
    try:
        span = range(*part.indices(size))
    except (TypeError, ValueError) as error:
        raise ArgumentError(f"[index] {part}: {error}") from None
    if span.step < 1:
        raise ArgumentError(f"[index] a slice's step must be positive, got {part.step}")
    return span


def merge_axes(shape: Shape, strides: Sequence[Shape]) -> tuple[Shape, list[Shape]]:
    """The same elements in the same order with as few axes as possible.

    Two neighbouring axes are merged if, for every operand, the outer stride is the inner stride times the
    inner size. Axes of size 1 are dropped.

    >>> merge_axes((2, 1, 3, 5), [(15, 7, 5, 1), (0, 0, 5, 1)])
    ((2, 15), [(15, 1), (0, 1)])
    """
    sizes: list[int] = []
    merged: list[list[int]] = [[] for _ in strides]
    for axis, size in enumerate(shape):
        if size == 1:
            continue
        axis_strides = [s[axis] for s in strides]
        if sizes and all(m[-1] == stride * size for m, stride in zip(merged, axis_strides, strict=True)):
            sizes[-1] *= size
            for m, stride in zip(merged, axis_strides, strict=True):
                m[-1] = stride
        else:
            sizes.append(size)
            for m, stride in zip(merged, axis_strides, strict=True):
                m.append(stride)
    return tuple(sizes), [tuple(m) for m in merged]
