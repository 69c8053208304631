"""Padding with a constant, by reflection, by replication of the border, and circular."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from dl4all.errors import ArgumentError
from dl4all.ops.core import strides, tape
from dl4all.ops.core.exports import export
from dl4all.ops.core.limits import check_shape
from dl4all.ops.core.tensor_base import Shape, TensorBase
from dl4all.ops.indexing.indices import Indices, NDArray, untracked_view
from dl4all.ops.indexing.rows import as_three_axes, select_indices, take_rows_backward
from dl4all.ops.memory.copy import copy_into, fill_with, new_like, unshared
from dl4all.ops.memory.parts import index
from dl4all.ops.memory.views import reshape

T = TypeVar("T", bound=TensorBase)
MODES = ("constant", "reflect", "replicate", "circular")


@export("F")
def pad(input: T, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> T:
    """Pad the last axes.

    Args:
        input: a tensor.
        pad: how many elements to add before and after the last axis, then before and after the last but one,
            and so on. Negative numbers remove elements.
        mode: "constant" adds `value`; "reflect" mirrors the elements next to the border, without the border
            itself; "replicate" repeats the border; "circular" continues from the other end.
        value: 0 by default.

    Where an axis loses elements at one end and gets others at the other, "circular" continues with what is
    left of it.

    Raises:
        ArgumentError: the numbers do not come in pairs, are too many or too large, or the mode is unknown.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.functional.pad(dl.tensor([1.0, 2.0, 3.0]), (2, 1), mode="reflect").tolist()
        [3.0, 2.0, 1.0, 2.0, 3.0, 2.0]
    """
    if not isinstance(pad, (tuple, list)):
        raise ArgumentError(f"[pad] expected two numbers for each axis, got {pad!r}")
    amounts = strides.sizes("pad", (tuple(pad),))
    ndim = len(input.shape)
    if len(amounts) % 2 or len(amounts) // 2 > ndim:
        raise ArgumentError(f"[pad] expected two numbers for each of at most {ndim} axes, got {amounts}")
    if mode not in MODES:
        raise ArgumentError(f"[pad] the mode must be one of {', '.join(MODES)}, got {mode!r}")
    pairs = {ndim - 1 - i: amounts[2 * i : 2 * i + 2] for i in range(len(amounts) // 2)}
    for axis, (before, after) in pairs.items():
        if input.shape[axis] + before + after < 0:
            raise ArgumentError(
                f"[pad] {before} and {after} leave nothing of axis {axis} of shape {input.shape}"
            )
    if mode == "constant":
        return _constant(input, pairs, 0.0 if value is None else value)
    if value not in (None, 0):
        raise ArgumentError(f"[pad] a value is for mode 'constant', not for {mode!r}")
    padded = input
    for axis, (before, after) in pairs.items():
        if mode == "circular" and min(before, after) < 0:
            padded = _constant(padded, {axis: (min(before, 0), min(after, 0))}, 0.0)
            before, after = max(before, 0), max(after, 0)
        if before or after:
            padded = select_indices(
                padded, axis, Indices(_source_indices(mode, padded.shape[axis], before, after))
            )
    return unshared(padded, input)


def pad_backward(gradient: T, shape: Shape, pad: Sequence[int], mode: str) -> T:
    """The gradient of :func:`pad` by copies of elements, for an input of a shape.

    Args:
        gradient: of the shape of the padded tensor.
        shape: of the input.
        pad, mode: as for :func:`pad`; not "constant".

    Returns:
        The sums over all copies of each element, of the input's shape.

    Raises:
        ArgumentError: as for :func:`pad`.
    """
    for i in range(len(pad) // 2):
        axis = len(shape) - 1 - i
        before, after = pad[2 * i : 2 * i + 2]
        if before or after:
            size, now = shape[axis], gradient.shape
            rows = take_rows_backward(
                as_three_axes(gradient, axis), Indices(_source_indices(mode, size, before, after)), size
            )
            gradient = reshape(rows, (*now[:axis], size, *now[axis + 1 :]))
    return gradient


def _source_indices(mode: str, size: int, before: int, after: int) -> NDArray:
    """Which element of an axis each element of the padded axis is a copy of.

    Raises:
        ArgumentError: the axis is too short.
    """
    limit = {"reflect": size - 1, "replicate": max(before, after) if size else 0, "circular": size}[mode]
    if max(before, after) > max(limit, 0):
        raise ArgumentError(f"[pad] mode {mode!r} can add at most {limit} to an axis of size {size}")
    indices = np.arange(-before, size + after)
    if mode == "replicate":
        return np.clip(indices, 0, size - 1)
    if mode == "circular":
        return indices % max(size, 1)
    return np.where(indices < 0, -indices, np.where(indices >= size, 2 * (size - 1) - indices, indices))


def _constant(input: T, pairs: dict[int, Shape], value: float) -> T:
    source_key = [slice(None)] * len(input.shape)
    result_key = [slice(None)] * len(input.shape)
    shape = list(input.shape)
    for axis, (before, after) in pairs.items():
        size = input.shape[axis]
        shape[axis] = size + before + after
        source_key[axis] = slice(max(-before, 0), size - max(-after, 0))
        result_key[axis] = slice(max(before, 0), shape[axis] - max(after, 0))
    source = index(input, tuple(source_key))
    result: T = new_like(source, check_shape("pad", tuple(shape)))
    fill_with(result, value, "pad")
    key = tuple(result_key)
    copy_into(untracked_view(result, key), source)
    tape.add_node("pad", [source], [result], lambda grads, saved, needs: [index(grads[0], key)])
    return result
