"""Max pooling over the last two axes, with indices where they are asked for."""

from __future__ import annotations

from dl4all.ops.core.exports import export
from dl4all.ops.core.tensor_base import Array
from dl4all.ops.core.vmap_hook import reads
from dl4all.ops.memory.views import reshape
from dl4all.ops.pool import max_pool
from dl4all.ops.pool.max_pool import max_pool_indices, max_pooling
from dl4all.ops.pool.windows import OutputSizes, Sizes, adaptive


@export("F")
def max_pool2d(
    input: Array,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Array:
    """The largest element in each window; the padding never wins, nan always does.

    Args:
        input: floats of shape (N, C, H, W) or (C, H, W).
        kernel_size, stride, padding, dilation: one int for both axes or a pair (vertical,
            horizontal). The stride defaults to the kernel size.
        ceil_mode: take a last window that begins inside but does not fit.
        return_indices: also return the index row * W + column of each maximum, as int64.

    Returns:
        Shape (N, C, OH, OW), or without N as the input:
        OH = (H + 2 padding - dilation (kernel_size - 1) - 1) // stride + 1; with
        `return_indices` a pair of these.

    Raises:
        ShapeError: the input is neither 4-d nor 3-d or the window does not fit into it.
        ArgumentError: a size is not an int or too small, or the padding exceeds half the window.

    Example:
        >>> import dl4all as dl
        >>> x = dl.tensor([[[[1.0, 4.0], [3.0, 2.0]]]])
        >>> dl.nn.functional.max_pool2d(x, 2).tolist()
        [[[[4.0]]]]
        >>> values, indices = dl.nn.functional.max_pool2d(x, 2, return_indices=True)
        >>> indices.tolist()
        [[[[1]]]]
    """
    if return_indices:
        return max_pool2d_with_indices(input, kernel_size, stride, padding, dilation, ceil_mode)
    return max_pool.max_pool2d(input, kernel_size, stride, padding, dilation, ceil_mode)


@export("F")
@reads("input")
def max_pool2d_with_indices(
    input: Array,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> tuple[Array, Array]:
    """:func:`max_pool2d` with ``return_indices=True``.

    Example:
        >>> import dl4all as dl
        >>> from dl4all.nn import functional as F
        >>> x, indices = F.max_pool2d_with_indices(dl.rand(2, 4, 12, 10), 2)
        >>> x.shape, indices.shape
        ((2, 4, 6, 5), (2, 4, 6, 5))
    """
    arguments = (kernel_size, stride, padding, dilation, ceil_mode)
    if len(input.shape) == 3:
        return _sample_pair(max_pool2d_with_indices(reshape(input, 1, *input.shape), *arguments))
    values = max_pool.max_pool2d(input, *arguments)
    return values, max_pool_indices(input, max_pooling(input.shape, *arguments))


@export("F")
def adaptive_max_pool2d(input: Array, output_size: OutputSizes, return_indices: bool = False) -> Array:
    """The largest element in each of the windows that divide the input into `output_size` parts.

    Args:
        input: floats of shape (N, C, H, W) or (C, H, W).
        output_size: as in :func:`adaptive_avg_pool2d`.
        return_indices: also return the index row * W + column of each maximum, as int64.

    Returns:
        Shape (N, C, OH, OW), or without N as the input; with `return_indices` a pair of these.

    Raises:
        ShapeError: the input is neither 4-d nor 3-d.
        ArgumentError: the size is not positive, or the input has no pixels.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.functional.adaptive_max_pool2d(dl.tensor([[[[1.0, 4.0], [3.0, 2.0]]]]), 1).tolist()
        [[[[4.0]]]]
    """
    if return_indices:
        return adaptive_max_pool2d_with_indices(input, output_size)
    return max_pool.adaptive_max_pool2d(input, output_size)


@export("F")
@reads("input")
def adaptive_max_pool2d_with_indices(
    input: Array, output_size: OutputSizes, return_indices: bool = False
) -> tuple[Array, Array]:
    """:func:`adaptive_max_pool2d` with ``return_indices=True``.

    Example:
        >>> import dl4all as dl
        >>> from dl4all.nn import functional as F
        >>> x, indices = F.adaptive_max_pool2d_with_indices(dl.rand(2, 4, 12, 10), 2)
        >>> x.shape, indices.shape
        ((2, 4, 2, 2), (2, 4, 2, 2))
    """
    if len(input.shape) == 3:
        return _sample_pair(adaptive_max_pool2d_with_indices(reshape(input, 1, *input.shape), output_size))
    values = max_pool.adaptive_max_pool2d(input, output_size)
    return values, max_pool_indices(input, adaptive("adaptive_max_pool2d", input.shape, output_size))


def _sample_pair(pair: tuple[Array, Array]) -> tuple[Array, Array]:
    """Values and indices of a batch of one, without its axis."""
    values, indices = pair
    return reshape(values, values.shape[1:]), reshape(indices, indices.shape[1:])
