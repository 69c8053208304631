"""Max unpooling: the partial inverse of max pooling."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from dl4all.errors import ArgumentError, ShapeError
from dl4all.ops.conv.window import sizes
from dl4all.ops.core import tape
from dl4all.ops.core.exports import export
from dl4all.ops.core.tensor_base import Array
from dl4all.ops.indexing.gather_scatter import expanded_number, gather, scatter
from dl4all.ops.memory.views import reshape
from dl4all.ops.pool.windows import Sizes


@export("F")
def max_unpool1d(
    input: Array,
    indices: Array,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    output_size: Sequence[int] | None = None,
) -> Array:
    """:func:`max_unpool2d` of (N, C, L) or (C, L).

    Example:
        >>> import dl4all as dl
        >>> x = dl.tensor([[[1.0, 5.0, 2.0, 3.0]]])
        >>> values, indices = dl.nn.functional.max_pool1d(x, 2, return_indices=True)
        >>> dl.nn.functional.max_unpool1d(values, indices, 2).tolist()
        [[[0.0, 5.0, 0.0, 3.0]]]
    """
    return _max_unpool("max_unpool1d", 1, input, indices, (kernel_size, stride, padding), output_size)


@export("F")
def max_unpool2d(
    input: Array,
    indices: Array,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    output_size: Sequence[int] | None = None,
) -> Array:
    """Images with each element at the index that max pooling found it at, and 0 elsewhere.

    Args:
        input: floats of shape (N, C, H, W) or (C, H, W).
        indices: of the same shape, from :func:`max_pool2d` with ``return_indices=True``.
        kernel_size, stride, padding: the arguments of the pooling.
        output_size: the size before pooling, where several sizes pool to the same one.

    Raises:
        ShapeError: the indices have another shape, or the number of axes is wrong.
        ArgumentError: an index lies outside.

    Example:
        >>> import dl4all as dl
        >>> x = dl.tensor([[[[1.0, 5.0], [2.0, 3.0]]]])
        >>> values, indices = dl.nn.functional.max_pool2d(x, 2, return_indices=True)
        >>> dl.nn.functional.max_unpool2d(values, indices, 2).tolist()
        [[[[0.0, 5.0], [0.0, 0.0]]]]
    """
    return _max_unpool("max_unpool2d", 2, input, indices, (kernel_size, stride, padding), output_size)


@export("F")
def max_unpool3d(
    input: Array,
    indices: Array,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    output_size: Sequence[int] | None = None,
) -> Array:
    """:func:`max_unpool2d` of (N, C, D, H, W) or (C, D, H, W).

    Example:
        >>> import dl4all as dl
        >>> x = dl.ones(1, 1, 2, 2, 2)
        >>> values, indices = dl.nn.functional.max_pool3d(x, 2, return_indices=True)
        >>> dl.nn.functional.max_unpool3d(values, indices, 2).sum().item()
        1.0
    """
    return _max_unpool("max_unpool3d", 3, input, indices, (kernel_size, stride, padding), output_size)


def _max_unpool(
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
        if not isinstance(output_size, (tuple, list)):
            raise ArgumentError(f"[{name}] output_size must be a list of ints, got {output_size!r}")
        requested = sizes(name, "output_size", tuple(output_size)[-axes:], 0, axes)
        if len(requested) != axes or any(
            abs(r - n) >= s for r, n, s in zip(requested, size, step, strict=True)
        ):
            raise ArgumentError(f"[{name}] output_size {tuple(output_size)} is too far from {size}")
        size = requested
    planes = math.prod(input.shape[:-axes])
    count = math.prod(input.shape[-axes:])
    rows, places = reshape(input, planes, count), reshape(indices, planes, count)
    result = scatter(expanded_number(input, 0, (planes, math.prod(size))), 1, places, tape.alias(rows))
    # An element that several windows have as their maximum hands its gradient to each of them, as in PyTorch.
    tape.add_node(
        "max_unpool", [rows], [result], lambda grads, saved, needs: [gather(grads[0], 1, saved[0])], (places,)
    )
    return reshape(result, *input.shape[:-axes], *size)
