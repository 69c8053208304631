"""Activations that shrink elements towards 0, and the leaky ReLU with random slopes."""

from __future__ import annotations

from dl4all.errors import ArgumentError
from dl4all.ops.activation.piecewise import leaky_relu
from dl4all.ops.core.exports import export
from dl4all.ops.core.limits import real
from dl4all.ops.core.op import empty
from dl4all.ops.core.tensor_base import Array
from dl4all.ops.elementwise.arithmetic import mul, sub
from dl4all.ops.elementwise.comparison import clamp, ge, le
from dl4all.ops.elementwise.logic import where
from dl4all.ops.elementwise.rounding import abs
from dl4all.ops.elementwise.transcendental import tanh
from dl4all.ops.indexing.inplace import in_place
from dl4all.ops.random.distributions import uniform_


@export("Tensor", "F")
def hardshrink(input: Array, lambd: float = 0.5) -> Array:
    """The elements whose absolute value is above `lambd`, 0 for the others.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.functional.hardshrink(dl.tensor([-1.0, 0.25, 2.0])).tolist()
        [-1.0, 0.0, 2.0]
    """
    return where(le(abs(input), lambd), 0.0, input)


@export("F")
def softshrink(input: Array, lambd: float = 0.5) -> Array:
    """The elements moved towards 0 by `lambd`; 0 where they are closer to 0 than that.

    Raises:
        ArgumentError: `lambd` is negative.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.functional.softshrink(dl.tensor([-1.0, 0.25, 2.0])).tolist()
        [-0.5, 0.0, 1.5]
    """
    if lambd < 0:
        raise ArgumentError(f"[softshrink] lambd must be at least 0, got {lambd}")
    return sub(input, clamp(input, -lambd, lambd))


@export("F")
def tanhshrink(input: Array) -> Array:
    """Each element minus its hyperbolic tangent.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.functional.tanhshrink(dl.tensor([0.0, 100.0])).tolist()
        [0.0, 99.0]
    """
    return sub(input, tanh(input))


@export("F", "F_")
def rrelu(
    input: Array, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False, inplace: bool = False
) -> Array:
    """Randomized leaky ReLU: elements below 0 are multiplied by a slope, a random one each in training.

    Xu et al., arXiv:1505.00853.

    Args:
        input: floats.
        lower, upper: the limits of the slopes; without training, the slope is their mean.
        training: whether slopes are random.
        inplace: write the result into the input, and return that.

    Raises:
        ArgumentError: `lower` is above `upper`.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.functional.rrelu(dl.tensor([-2.0, 3.0]), 0.25, 0.75).tolist()
        [-1.0, 3.0]
    """
    lower, upper = real("rrelu", "lower", lower), real("rrelu", "upper", upper)
    if lower > upper:
        raise ArgumentError(f"[rrelu] lower must not be above upper, got {lower} and {upper}")
    if not training:
        return leaky_relu(input, (lower + upper) / 2, inplace)
    slopes = empty(type(input).result_class, input.shape, input.dtype, input.device)
    slopes = uniform_(slopes, lower, upper) if lower < upper else slopes.fill_(lower)
    slopes = where(ge(input, 0), 1.0, slopes)
    result: Array = (in_place(mul) if inplace else mul)(input, slopes)
    return result
