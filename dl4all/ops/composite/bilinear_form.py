"""What works across channels: shuffling, normalization by neighbours, and products of two inputs."""

from __future__ import annotations

from typing import Any

from dl4all.errors import ArgumentError, ShapeError
from dl4all.ops.core.exports import export
from dl4all.ops.elementwise.arithmetic import mul, true_divide
from dl4all.ops.elementwise.transcendental import pow
from dl4all.ops.indexing.padding import pad
from dl4all.ops.linalg.contractions import tensordot
from dl4all.ops.memory.views import narrow, reshape, transpose, unsqueeze
from dl4all.ops.reduce.sums import sum


@export("F")
def channel_shuffle(input: Any, groups: int) -> Any:
    """Channels, axis 1, in another order: the first of each group, then the second of each, and so on.

    Raises:
        ArgumentError: the channels do not split into so many groups.

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
    apart = reshape(input, input.shape[0], groups, input.shape[1] // groups, *input.shape[2:])
    return reshape(transpose(apart, 1, 2), *input.shape)


@export("F")
def local_response_norm(
    input: Any, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0
) -> Any:
    """Each element divided by a power of the mean square of its neighbours in other channels.

    Krizhevsky et al., 2012: ``input / (k + alpha * mean) ** beta``.

    Args:
        input: floats of shape (N, C, ...).
        size: how many channels count, the element's own in the middle.
        alpha, beta, k: as above.

    Raises:
        ArgumentError: there are less than three axes, or no channel counts.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.functional.local_response_norm(dl.ones(1, 3, 1), 1, alpha=3.0, beta=1.0).flatten().tolist()
        [0.25, 0.25, 0.25]
    """
    if len(input.shape) < 3 or size < 1:
        raise ArgumentError(
            f"[local_response_norm] expected shape (N, C, ...) and a size, got {input.shape} and {size}"
        )
    beside = (0, 0) * (len(input.shape) - 2)
    squares = pad(mul(input, input), (*beside, size // 2, (size - 1) // 2))
    channels = input.shape[1]
    total = narrow(squares, 1, 0, channels)
    for place in range(1, size):
        total = total + narrow(squares, 1, place, channels)
    return true_divide(input, pow(total * (alpha / size) + k, beta))


@export("F")
def bilinear(input1: Any, input2: Any, weight: Any, bias: Any = None) -> Any:
    """A product of two inputs with a matrix for each output: ``input1 @ weight[i] @ input2 + bias[i]``.

    Args:
        input1: floats of shape (..., in1).
        input2: floats of shape (..., in2), with the same axes in front.
        weight: shape (out, in1, in2).
        bias: shape (out,), or None.

    Returns:
        Shape (..., out).

    Raises:
        ShapeError: the shapes do not fit.

    Example:
        >>> import dl4all as dl
        >>> x, y = dl.tensor([[1.0, 2.0]]), dl.tensor([[3.0]])
        >>> dl.nn.functional.bilinear(x, y, dl.ones(1, 2, 1)).tolist()
        [[9.0]]
    """
    if (
        len(weight.shape) != 3
        or not input1.shape
        or not input2.shape
        or (
            (input1.shape[-1], input2.shape[-1]) != weight.shape[1:] or input1.shape[:-1] != input2.shape[:-1]
        )
    ):
        raise ShapeError(
            f"[bilinear] inputs of shapes {input1.shape} and {input2.shape} do not fit a weight of shape "
            f"{weight.shape}"
        )
    rows = tensordot(input1, weight, ([-1], [1]))
    product = sum(mul(rows, unsqueeze(input2, -2)), -1)
    return product if bias is None else product + bias
