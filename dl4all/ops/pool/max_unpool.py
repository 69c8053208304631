"""The way back from pooling: what was the largest at its place, 0 elsewhere."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from dl4all.errors import ArgumentError, ShapeError
from dl4all.ops.conv.window import sizes
from dl4all.ops.core.exports import export
from dl4all.ops.indexing.gather_scatter import expanded_number, scatter
from dl4all.ops.memory.views import reshape


@export("F")
def max_unpool1d(
    input: Any,
    indices: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    output_size: Sequence[int] | None = None,
) -> Any:
    """:func:`max_unpool2d` of (N, C, L) or (C, L).

    Example:
        >>> import dl4all as dl
        >>> x = dl.tensor([[[1.0, 5.0, 2.0, 3.0]]])
        >>> found, places = dl.nn.functional.max_pool1d_with_indices(x, 2)
        >>> dl.nn.functional.max_unpool1d(found, places, 2).tolist()
        [[[0.0, 5.0, 0.0, 3.0]]]
    """
    return _unpooled("max_unpool1d", 1, input, indices, (kernel_size, stride, padding), output_size)


@export("F")
def max_unpool2d(
    input: Any,
    indices: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    output_size: Sequence[int] | None = None,
) -> Any:
    """Images with each element at the place where pooling found it, and 0 elsewhere.

    Args:
        input: floats of shape (N, C, H, W) or (C, H, W).
        indices: of the same shape, from :func:`max_pool2d_with_indices`.
        kernel_size, stride, padding: of the pooling.
        output_size: the size before pooling, which windows of several sizes may have led to.

    Raises:
        ShapeError: the indices' shape differs, or there is another number of axes.
        ArgumentError: a place lies outside.

    Example:
        >>> import dl4all as dl
        >>> x = dl.tensor([[[[1.0, 5.0], [2.0, 3.0]]]])
        >>> found, places = dl.nn.functional.max_pool2d_with_indices(x, 2)
        >>> dl.nn.functional.max_unpool2d(found, places, 2).tolist()
        [[[[0.0, 5.0], [0.0, 0.0]]]]
    """
    return _unpooled("max_unpool2d", 2, input, indices, (kernel_size, stride, padding), output_size)


@export("F")
def max_unpool3d(
    input: Any,
    indices: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    output_size: Sequence[int] | None = None,
) -> Any:
    """:func:`max_unpool2d` of (N, C, D, H, W) or (C, D, H, W).

    Example:
        >>> import dl4all as dl
        >>> found, places = dl.nn.functional.max_pool3d_with_indices(dl.ones(1, 1, 2, 2, 2), 2)
        >>> dl.nn.functional.max_unpool3d(found, places, 2).sum().item()
        1.0
    """
    return _unpooled("max_unpool3d", 3, input, indices, (kernel_size, stride, padding), output_size)


def _unpooled(
    name: str, axes: int, input: Any, indices: Any, window: tuple[Any, Any, Any], output_size: Any
) -> Any:
    if len(input.shape) not in (axes + 1, axes + 2) or input.shape != indices.shape:
        raise ShapeError(
            f"[{name}] expected {axes + 1} or {axes + 2} axes and indices of the same shape, got "
            f"{input.shape} and {indices.shape}"
        )
    kernel = sizes(name, "kernel_size", window[0], 1, axes)
    step = kernel if window[1] in (None, ()) else sizes(name, "stride", window[1], 1, axes)
    pad = sizes(name, "padding", window[2], 0, axes)
    size = tuple(
        (n - 1) * s - 2 * p + k for n, s, p, k in zip(input.shape[-axes:], step, pad, kernel, strict=True)
    )
    if output_size is not None:
        wanted = tuple(output_size)[-axes:]
        if len(wanted) != axes or any(abs(w - n) >= s for w, n, s in zip(wanted, size, step, strict=True)):
            raise ArgumentError(f"[{name}] output_size {tuple(output_size)} is too far from {size}")
        size = wanted
    lines = math.prod(input.shape[:-axes])
    count = math.prod(input.shape[-axes:])
    zeros = expanded_number(input, 0, (lines, math.prod(size)))
    found = scatter(zeros, 1, reshape(indices, lines, count), reshape(input, lines, count))
    return reshape(found, *input.shape[:-axes], *size)
