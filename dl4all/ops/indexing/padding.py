"""Padding, and matrices of which a triangle or a diagonal is kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

from dl4all.errors import ArgumentError, ShapeError
from dl4all.ops.core import strides, tape
from dl4all.ops.core.exports import export
from dl4all.ops.core.launch import pack, run, strided_grid
from dl4all.ops.core.op import REGISTRY, Kernel, Result, example, op
from dl4all.ops.core.tensor_base import Array, TensorBase, contiguous_strides
from dl4all.ops.indexing.concatenation import picked
from dl4all.ops.indexing.indices import Indices
from dl4all.ops.memory.copy import MOVABLE_DTYPES, copy_into, fill_with, new_like, word_shaders
from dl4all.ops.memory.views import contiguous, index, place
from dl4all.ops.memory.views import diagonal as diagonal_view

T = TypeVar("T", bound=TensorBase)
MODES = ("constant", "reflect", "replicate", "circular")
WORKGROUP = 128
TRIANGLE = {upper: word_shaders("indexing/triangle.comp", UPPER=int(upper)) for upper in (False, True)}


@export("F")
def pad(input: T, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> T:
    """More places before and after the last axes.

    Args:
        input: a tensor.
        pad: how many before and after the last axis, then before and after the last but one, and so on.
            Negative numbers take places away.
        mode: what is put there: "constant" `value`; "reflect" what lies on the other side of the border,
            without the border itself; "replicate" the border; "circular" what lies at the other end.
        value: 0 by default.

    Raises:
        ArgumentError: the numbers do not come in pairs, are too many or too large, or the mode is unknown.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.functional.pad(dl.tensor([1.0, 2.0, 3.0]), (2, 1), mode="reflect").tolist()
        [3.0, 2.0, 1.0, 2.0, 3.0, 2.0]
    """
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
    for axis, (before, after) in pairs.items():
        if before or after:
            input = picked(input, axis, Indices(_places(mode, input.shape[axis], before, after)))
    return input


def _places(mode: str, size: int, before: int, after: int) -> Any:
    """Where along an axis each place of the padded one comes from."""
    most = {"reflect": size - 1, "replicate": max(before, after) if size else 0, "circular": size}[mode]
    if max(before, after) > most:
        raise ArgumentError(f"[pad] mode {mode!r} can add at most {most} to an axis of size {size}")
    wanted = np.arange(-before, size + after)
    if mode == "replicate":
        return np.clip(wanted, 0, size - 1)
    if mode == "circular":
        return wanted % max(size, 1)
    return np.where(wanted < 0, -wanted, np.where(wanted >= size, 2 * (size - 1) - wanted, wanted))


def _constant(input: T, pairs: dict[int, Any], value: float) -> T:
    kept = [slice(None)] * len(input.shape)
    there = [slice(None)] * len(input.shape)
    shape = list(input.shape)
    for axis, (before, after) in pairs.items():
        size = input.shape[axis]
        shape[axis] = size + before + after
        kept[axis] = slice(max(-before, 0), size - max(-after, 0))
        there[axis] = slice(max(before, 0), shape[axis] - max(after, 0))
    part = index(input, tuple(kept))
    made: T = new_like(part, tuple(shape))
    fill_with(made, value)
    key = tuple(there)
    copy_into(made.as_strided(*strides.basic(key, made.shape, made.strides, 0)), part)
    tape.attach("pad", [part], [made], lambda grads, saved, needs: [index(grads[0], key)])
    return made


# Triangles


def _triangle_shape(name: str) -> Any:
    def infer(input: TensorBase, diagonal: int) -> Result:
        if len(input.shape) < 2:
            raise ShapeError(f"[{name}] expected matrices, got shape {input.shape}")
        if not isinstance(diagonal, int):
            raise ArgumentError(f"[{name}] diagonal must be an int, got {diagonal!r}")
        return input.shape, input.dtype

    return infer


def _triangle_run(upper: bool) -> Any:
    def launch(out: TensorBase, input: TensorBase, diagonal: int) -> None:
        x = contiguous(input)
        rows, columns = x.shape[-2:]
        far = max(min(diagonal, columns), -rows)  # beyond that nothing changes, and it fits 32 bits
        push = pack(x.numel(), x.offset, rows, columns, far)
        run(TRIANGLE[upper][out.dtype.itemsize], strided_grid(x.numel(), WORKGROUP), push, x, out)

    return launch


TRIANGLES = (
    example((7, 5), diagonal=0), example((2, 3, 11), diagonal=2), example((13, 3), diagonal=-2),
    example((5, 5), diagonal=-9), example((1, 1), diagonal=1), example((0, 3), diagonal=0),
)  # fmt: skip


@export("dl", "Tensor", "Tensor_")
@op(
    infer=_triangle_shape("tril"),
    kernel=Kernel(_triangle_run(False), (TRIANGLE[False][4],), MOVABLE_DTYPES),
    examples=TRIANGLES,
    grad=lambda g, diagonal: REGISTRY["tril"](g, diagonal),
)
def tril(input: Array, diagonal: int = 0) -> Array:
    """Matrices with zeros above a diagonal.

    Args:
        input: shape (..., rows, columns), of any dtype.
        diagonal: 0 is the main one, 1 that above it.

    Returns:
        The input's shape.

    Raises:
        ShapeError: the input has fewer than two axes.

    Example:
        >>> import dl4all as dl
        >>> dl.tril(dl.ones(2, 2)).tolist()
        [[1.0, 0.0], [1.0, 1.0]]
    """
    return np.tril(input, diagonal)


@export("dl", "Tensor", "Tensor_")
@op(
    infer=_triangle_shape("triu"),
    kernel=Kernel(_triangle_run(True), (TRIANGLE[True][4],), MOVABLE_DTYPES),
    examples=TRIANGLES,
    grad=lambda g, diagonal: REGISTRY["triu"](g, diagonal),
)
def triu(input: Array, diagonal: int = 0) -> Array:
    """Matrices with zeros below a diagonal.

    Args:
        input: shape (..., rows, columns), of any dtype.
        diagonal: 0 is the main one, 1 that above it.

    Returns:
        The input's shape.

    Raises:
        ShapeError: the input has fewer than two axes.

    Example:
        >>> import dl4all as dl
        >>> dl.triu(dl.ones(2, 2), 1).tolist()
        [[0.0, 1.0], [0.0, 0.0]]
    """
    return np.triu(input, diagonal)


@export("dl", "Tensor")
def diag_embed(input: T, offset: int = 0) -> T:
    """Matrices with the last axis on a diagonal, `offset` places above the main one, and zeros elsewhere."""
    if not input.shape:
        raise ShapeError("[diag_embed] expected at least one axis, got shape ()")
    size = input.shape[-1] + abs(offset)
    shape = (*input.shape[:-1], size, size)
    ndim = len(shape)
    return place(
        input, shape, strides.diagonal(shape, contiguous_strides(shape), 0, offset, ndim - 2, ndim - 1)
    )


@export("dl", "Tensor")
def diag(input: T, diagonal: int = 0) -> T:
    """The diagonal of a matrix, or the matrix that has a vector on its diagonal.

    Raises:
        ShapeError: the tensor has another number of axes.

    Example:
        >>> import dl4all as dl
        >>> dl.diag(dl.tensor([1.0, 2.0])).tolist()
        [[1.0, 0.0], [0.0, 2.0]]
    """
    if len(input.shape) not in (1, 2):
        raise ShapeError(f"[diag] expected a vector or a matrix, got shape {input.shape}")
    return diag_embed(input, diagonal) if len(input.shape) == 1 else diagonal_view(input, diagonal)
