"""Channel shuffle (Zhang et al., arXiv:1707.01083) and pixel shuffle (Shi et al., arXiv:1609.05158)."""

from __future__ import annotations

from dl4all.errors import ArgumentError, ShapeError
from dl4all.ops.core.exports import export
from dl4all.ops.core.tensor_base import Array
from dl4all.ops.memory.copy import unshared
from dl4all.ops.memory.views import permute, reshape, transpose


@export("F")
def channel_shuffle(input: Array, groups: int) -> Array:
    """Channels (axis 1) in interleaved order: the first of each group, then the second of each, and so on.

    Raises:
        ArgumentError: the number of channels is no multiple of `groups`.

    Example:
        >>> import dl4all as dl
        >>> x = dl.tensor([[[[1.0]], [[2.0]], [[3.0]], [[4.0]]]])
        >>> dl.nn.functional.channel_shuffle(x, 2).flatten().tolist()
        [1.0, 3.0, 2.0, 4.0]
    """
    if len(input.shape) < 3 or groups < 1 or input.shape[1] % groups:
        raise ArgumentError(
            f"[channel_shuffle] shape {input.shape} has no channels that split into {groups} groups"
        )
    grouped = reshape(input, input.shape[0], groups, input.shape[1] // groups, *input.shape[2:])
    return unshared(reshape(transpose(grouped, 1, 2), *input.shape), input)


@export("dl", "F")
def pixel_shuffle(input: Array, upscale_factor: int) -> Array:
    """Moves channels to squares of pixels: (..., C * r * r, H, W) becomes (..., C, H * r, W * r).

    Raises:
        ShapeError: the number of channels is no multiple of r * r.

    Example:
        >>> import dl4all as dl
        >>> dl.pixel_shuffle(dl.ones(1, 8, 2, 3), 2).shape
        (1, 2, 4, 6)
    """
    r = upscale_factor
    if len(input.shape) < 3 or r < 1 or input.shape[-3] % (r * r):
        raise ShapeError(f"[pixel_shuffle] expected shape (..., C * {r} * {r}, H, W), got {input.shape}")
    *batch, channels, height, width = input.shape
    n = len(batch)
    blocks = reshape(input, (*batch, channels // (r * r), r, r, height, width))
    permuted = permute(blocks, (*range(n), n, n + 3, n + 1, n + 4, n + 2))
    return unshared(reshape(permuted, (*batch, channels // (r * r), height * r, width * r)), input)


@export("dl", "F")
def pixel_unshuffle(input: Array, downscale_factor: int) -> Array:
    """The inverse of :func:`pixel_shuffle`: (..., C, H * r, W * r) becomes (..., C * r * r, H, W).

    Raises:
        ShapeError: height or width is no multiple of the factor.

    Example:
        >>> import dl4all as dl
        >>> dl.pixel_unshuffle(dl.ones(1, 2, 4, 6), 2).shape
        (1, 8, 2, 3)
    """
    r = downscale_factor
    if len(input.shape) < 3 or r < 1 or input.shape[-1] % r or input.shape[-2] % r:
        raise ShapeError(f"[pixel_unshuffle] expected shape (..., C, H * {r}, W * {r}), got {input.shape}")
    *batch, channels, height, width = input.shape
    n = len(batch)
    blocks = reshape(input, (*batch, channels, height // r, r, width // r, r))
    permuted = permute(blocks, (*range(n), n, n + 2, n + 4, n + 1, n + 3))
    return unshared(reshape(permuted, (*batch, channels * r * r, height // r, width // r)), input)
