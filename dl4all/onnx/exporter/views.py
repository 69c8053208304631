"""Views of values as ONNX nodes: an operand's strides say which elements of a value it shows."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from dl4all.ops.core.tensor_base import contiguous_strides

Step = tuple[str, Any]
"""A node: ``Reshape`` and ``Expand`` with sizes, ``Transpose`` with an order, ``Slice`` with starts, ends,
axes and steps, ``Flip`` with axes."""


class View(NamedTuple):
    """Elements of a value in row-major order, as a tensor shows them."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int


def view_steps(base: tuple[int, ...], view: View) -> list[Step] | None:
    """The nodes that make a view of a contiguous value; None if no nest of axes does.

    >>> view_steps((2, 3), View((3, 2), (1, 3), 0))
    [('Transpose', (1, 0))]
    >>> view_steps((2, 3), View((2, 1), (3, 1), 1))
    [('Slice', ((1,), (2,), (1,), (1,)))]
    """
    shape, strides, offset = view
    flipped = tuple(i for i, (n, s) in enumerate(zip(shape, strides, strict=True)) if s < 0 and n > 1)
    if flipped:
        offset += sum((shape[i] - 1) * strides[i] for i in flipped)
        ahead = View(shape, tuple(abs(s) for s in strides), offset)
        steps = view_steps(base, ahead)
        return None if steps is None else [*steps, ("Flip", flipped)]
    if shape == base and _is_contiguous(shape, strides) and offset == 0:
        return []
    dense = tuple(1 if s == 0 else n for n, s in zip(shape, strides, strict=True))
    steps = _dense_steps(base, dense, strides, offset)
    if steps is None:
        return None
    return steps if dense == shape else [*steps, ("Expand", shape)]


def _is_contiguous(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    wanted = contiguous_strides(shape)
    return all(n <= 1 or s == w for n, s, w in zip(shape, strides, wanted, strict=True))


def _dense_steps(
    base: tuple[int, ...], shape: tuple[int, ...], strides: tuple[int, ...], offset: int
) -> list[Step] | None:
    """The nodes of a view that shows no element twice."""
    if math.prod(shape) == math.prod(base) and offset == 0 and _is_contiguous(shape, strides):
        return [("Reshape", shape)] if shape != base else []
    axes = sorted((i for i in range(len(shape)) if shape[i] > 1), key=lambda i: -strides[i])
    levels = _levels(base, [strides[i] for i in axes])
    if levels is None:
        return None
    # Each level is an axis of the view, of which a range is taken, or one that is cut to a single element.
    owners = [*axes, *[len(shape)] * (len(levels) - len(axes))]
    cuts, counts, rest = [], [], offset
    for k, (level, owner) in enumerate(zip(levels, owners, strict=True)):
        first, rest = divmod(rest, level.stride)
        count = shape[owner] if owner < len(shape) else 1
        end = first + (count - 1) * level.step + 1
        if end > level.size:
            return None
        counts.append(count)
        if (first, end, level.step) != (0, level.size, 1):
            cuts.append((first, end, k, level.step))
    sizes = tuple(level.size for level in levels)
    steps: list[Step] = [("Reshape", sizes)] if sizes != base else []
    if cuts:
        steps.append(("Slice", tuple(zip(*cuts, strict=True))))
    order = sorted(range(len(levels)), key=lambda k: owners[k])
    if order != list(range(len(levels))):
        steps.append(("Transpose", tuple(order)))
    if tuple(counts[k] for k in order) != shape:
        steps.append(("Reshape", shape))
    return steps


class _Level(NamedTuple):
    """An axis of a contiguous value in another shape."""

    size: int
    stride: int
    step: int  # from one element that a view shows to the next


def _levels(base: tuple[int, ...], strides: list[int]) -> list[_Level] | None:
    """The axes of a value among which those of a view are, the outermost first; None if there are no such.

    >>> [tuple(level) for level in _levels((2, 3, 4), [12, 1])]
    [(2, 12, 1), (12, 1, 1)]
    >>> [tuple(level) for level in _levels((3, 5), [5, 2])]
    [(3, 5, 1), (5, 1, 2)]
    """
    if len(set(strides)) < len(strides):
        return None
    levels, previous = [], math.prod(base)
    for stride in strides:
        units = (stride, *sorted(contiguous_strides(base), reverse=True))
        unit = next((u for u in units if u and previous % u == 0 and stride % u == 0), None)
        if unit is None:
            return None
        levels.append(_Level(previous // unit, unit, stride // unit))
        previous = unit
    if previous != 1:
        levels.append(_Level(previous, 1, 1))
    return levels
