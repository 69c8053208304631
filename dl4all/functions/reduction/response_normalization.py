"""Local response normalization, and renorm, which limits the norm of slices."""

from __future__ import annotations

from dl4all.errors import ArgumentError
from dl4all.ops.core import strides
from dl4all.ops.core.checks import check_numbers
from dl4all.ops.core.dtypes import kind_of
from dl4all.ops.core.exports import export
from dl4all.ops.core.limits import integer, real
from dl4all.ops.core.tensor_base import Array
from dl4all.ops.elementwise.arithmetic import mul, true_divide
from dl4all.ops.elementwise.logic import where
from dl4all.ops.elementwise.rounding import floor_divide
from dl4all.ops.elementwise.transcendental import pow
from dl4all.ops.indexing.padding import pad
from dl4all.ops.memory.parts import narrow
from dl4all.ops.reduce.vector_norm import norm


@export("F", autocast="float32")
def local_response_norm(
    input: Array, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0
) -> Array:
    """Each element divided by a power of the mean square of its neighbours in other channels.

    Krizhevsky et al., 2012: ``input / (k + alpha * mean) ** beta``.

    Args:
        input: floats of shape (N, C, ...); or integers, of whose squares the mean is rounded down, and then
            the result is float32.
        size: the number of channels in the mean, with the element's own channel in the middle.
        alpha, beta, k: see the formula.

    Raises:
        ArgumentError: the input has less than three axes, or `size` is below 1.
        DTypeError: the input is of bools.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.functional.local_response_norm(dl.ones(1, 3, 1), 1, alpha=3.0, beta=1.0).flatten().tolist()
        [0.25, 0.25, 0.25]
    """
    check_numbers("local_response_norm", input)
    integer("local_response_norm", "size", size)
    alpha = real("local_response_norm", "alpha", alpha)
    if len(input.shape) < 3 or size < 1:
        raise ArgumentError(
            f"[local_response_norm] expected shape (N, C, ...) and a size, got {input.shape} and {size}"
        )
    if not input.numel():
        return input
    no_padding = (0, 0) * (len(input.shape) - 2)
    squares = pad(mul(input, input), (*no_padding, size // 2, (size - 1) // 2))
    channels = input.shape[1]
    total = narrow(squares, 1, 0, channels)
    for start in range(1, size):
        total = total + narrow(squares, 1, start, channels)
    scaled = total * (alpha / size) if kind_of(input.dtype) == "f" else floor_divide(total, size) * alpha
    return true_divide(input, pow(scaled + k, beta))


@export("dl", "Tensor", "Tensor_", out=True, autocast="float32")
def renorm(input: Array, p: float, dim: int, maxnorm: float) -> Array:
    """The input with each slice along an axis scaled down to norm `maxnorm` where its norm is larger.

    Args:
        input: floats.
        p: the order of the norm.
        dim: the axis; there is one slice for each index into it.
        maxnorm: the largest norm that a slice may have.

    Raises:
        ArgumentError: there is no such axis.

    Example:
        >>> import dl4all as dl
        >>> dl.renorm(dl.tensor([[3.0, 4.0], [0.3, 0.4]]), 2, 0, 1.0).round(decimals=4).tolist()[0]
        [0.6000000238418579, 0.800000011920929]
    """
    axis = strides.axis("renorm", dim, len(input.shape))
    other_axes = tuple(i for i in range(len(input.shape)) if i != axis)
    norms = norm(input, p, other_axes, True)
    too_large = norms > maxnorm
    return mul(input, where(too_large, maxnorm / (where(too_large, norms, 1.0) + 1e-7), 1.0))
