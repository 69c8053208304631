"""Sliding windows of tensors: Tensor.unfold, and unfold (im2col) and fold (col2im) of images."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dl4all.errors import ArgumentError, ShapeError
from dl4all.ops.core import strides, tape
from dl4all.ops.core.exports import export
from dl4all.ops.core.limits import check_shape, check_view, host_memory, integer
from dl4all.ops.core.tensor_base import Array, Shape
from dl4all.ops.indexing.indices import Indices, NDArray
from dl4all.ops.indexing.padding import pad
from dl4all.ops.indexing.rows import select_indices, take_rows_backward
from dl4all.ops.memory.views import permute, reshape


@export("Tensor.unfold")
def window(input: Array, dimension: int, size: int, step: int) -> Array:
    """A view of all windows of `size` elements along an axis, `step` apart, with the windows' axis last.

    It is ``Tensor.unfold``.

    Raises:
        ArgumentError: the size or the step is out of range.

    Example:
        >>> import dl4all as dl
        >>> dl.tensor([1.0, 2.0, 3.0, 4.0]).unfold(0, 2, 1).tolist()
        [[1.0, 2.0], [2.0, 3.0], [3.0, 4.0]]
    """
    if not input.shape:
        return reshape(window(reshape(input, 1), dimension, size, step), size)
    axis = strides.axis("unfold", dimension, len(input.shape))
    integer("unfold", "size", size), integer("unfold", "step", step)
    shape, steps = input.shape, input.strides
    if not 0 <= size <= shape[axis] or step < 1:
        raise ArgumentError(f"[unfold] size {size} and step {step} do not fit axis {axis} of shape {shape}")
    count = (shape[axis] - size) // step + 1
    view = input.strided_view(
        check_view("unfold", (*shape[:axis], count, *shape[axis + 1 :], size)),
        (*steps[:axis], steps[axis] * step if count > 1 else 1, *steps[axis + 1 :], steps[axis]),
        input.offset,
    )

    def backward(grads: Sequence[Array], saved: Sequence[Array], needs: Sequence[bool]) -> list[Array]:
        last = len(shape)
        indices = Indices(np.arange(count)[:, None] * step + np.arange(size))
        windows_together = permute(grads[0], (*range(axis + 1), last, *range(axis + 1, last)))
        outer, inner = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
        rows = reshape(windows_together, outer, len(indices), inner)
        return [reshape(take_rows_backward(rows, indices, shape[axis]), shape)]

    tape.add_node("unfold", [input], [view], backward)
    return view


def _pair(name: str, value: int | Sequence[int]) -> tuple[int, int]:
    """A value for height and width.

    Raises:
        ArgumentError: it is neither an int nor two ints.
    """
    pair = tuple(value) if isinstance(value, (tuple, list)) else (value, value)
    if len(pair) != 2:
        raise ArgumentError(f"[{name}] expected an int or two, got {value}")
    first, second = (integer(name, "a size", v) for v in pair)
    return first, second


def _window_indices(
    name: str,
    image_size: Shape,
    kernel_size: int | Sequence[int],
    dilation: int | Sequence[int],
    padding: int | Sequence[int],
    stride: int | Sequence[int],
) -> list[NDArray]:
    """For height and width, the index into the padded image of each window element: (kernel, windows).

    Raises:
        ArgumentError: there is no window.
    """
    indices = []
    for n, k, d, p, s in zip(
        image_size, *(_pair(name, v) for v in (kernel_size, dilation, padding, stride)), strict=True
    ):
        count = (n + 2 * p - d * (k - 1) - 1) // s + 1 if min(k, d, s) > 0 <= p else 0
        if count < 1:
            raise ArgumentError(
                f"[{name}] no window of size {k}, dilation {d}, padding {p} and stride {s} fits "
                f"an axis of size {n}"
            )
        check_shape(name, (k, count, n + 2 * p))
        with host_memory(name):
            indices.append(np.arange(k)[:, None] * d + np.arange(count) * s)
    return indices


@export("F")
def unfold(
    input: Array,
    kernel_size: int | Sequence[int],
    dilation: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    stride: int | Sequence[int] = 1,
) -> Array:
    """The windows of an image as columns (im2col).

    Args:
        input: shape (N, C, H, W) or (C, H, W).
        kernel_size, dilation, padding, stride: of the windows, an int or one for each axis.

    Returns:
        Shape (N, C * kernel height * kernel width, number of windows).

    Raises:
        ShapeError: the input has another number of axes.
        ArgumentError: no window fits.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.functional.unfold(dl.ones(1, 2, 3, 3), 2).shape
        (1, 8, 4)
    """
    if len(input.shape) == 3:
        columns = unfold(reshape(input, (1, *input.shape)), kernel_size, dilation, padding, stride)
        return reshape(columns, columns.shape[1:])
    if len(input.shape) != 4:
        raise ShapeError(f"[unfold] expected shape (N, C, H, W) or (C, H, W), got {input.shape}")
    n, c, height, width = input.shape
    ys, xs = _window_indices("unfold", (height, width), kernel_size, dilation, padding, stride)
    pad_y, pad_x = _pair("unfold", padding)
    padded = pad(input, (pad_x, pad_x, pad_y, pad_y)) if pad_y or pad_x else input
    taken = select_indices(select_indices(padded, 2, Indices(ys)), 3, Indices(xs))
    windows = permute(reshape(taken, (n, c, *ys.shape, *xs.shape)), 0, 1, 2, 4, 3, 5)
    return reshape(windows, n, c * len(ys) * len(xs), ys.shape[1] * xs.shape[1])


@export("F")
def fold(
    input: Array,
    output_size: int | Sequence[int],
    kernel_size: int | Sequence[int],
    dilation: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    stride: int | Sequence[int] = 1,
) -> Array:
    """The image whose elements are the sums over all windows that cover them (col2im).

    It is the transpose of :func:`unfold`.

    Args:
        input: shape (N, C * kernel height * kernel width, number of windows), N may be missing.
        output_size: height and width of the image.
        kernel_size, dilation, padding, stride: of the windows, an int or one for each axis.

    Returns:
        Shape (N, C, height, width).

    Raises:
        ShapeError: the numbers of columns or of windows do not fit.
        ArgumentError: no window fits.

    Example:
        >>> import dl4all as dl
        >>> from dl4all.nn import functional as F
        >>> F.fold(dl.rand(1, 12, 4), (4, 4), 2, stride=2).shape
        (1, 3, 4, 4)
    """
    if len(input.shape) == 2:
        image = fold(reshape(input, (1, *input.shape)), output_size, kernel_size, dilation, padding, stride)
        return reshape(image, image.shape[1:])
    height, width = _pair("fold", output_size)
    ys, xs = _window_indices("fold", (height, width), kernel_size, dilation, padding, stride)
    area, windows = len(ys) * len(xs), ys.shape[1] * xs.shape[1]
    if len(input.shape) != 3 or input.shape[1] % area or input.shape[2] != windows:
        raise ShapeError(
            f"[fold] expected shape (N, C * {area}, {windows}) for an image of {height} x {width}, "
            f"got {input.shape}"
        )
    n, c = input.shape[0], input.shape[1] // area
    pad_y, pad_x = _pair("fold", padding)
    padded_height, padded_width = height + 2 * pad_y, width + 2 * pad_x
    split = reshape(input, (n, c, len(ys), len(xs), ys.shape[1], xs.shape[1]))
    permuted = reshape(permute(split, 0, 1, 2, 4, 3, 5), n * c * ys.size, xs.size, 1)
    rows = take_rows_backward(permuted, Indices(xs), padded_width)
    rows = reshape(rows, n * c, ys.size, padded_width)
    image = take_rows_backward(rows, Indices(ys), padded_height)
    image = reshape(image, (n, c, padded_height, padded_width))
    return pad(image, (-pad_x, -pad_x, -pad_y, -pad_y)) if pad_y or pad_x else image
