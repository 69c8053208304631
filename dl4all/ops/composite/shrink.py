"""Activations that take elements towards 0, and one with random slopes."""

from __future__ import annotations

from typing import Any

from dl4all.errors import ArgumentError
from dl4all.ops.activation.piecewise import leaky_relu
from dl4all.ops.core.exports import export
from dl4all.ops.core.op import empty
from dl4all.ops.elementwise.arithmetic import mul, sub
from dl4all.ops.elementwise.comparison import ge, gt, le, lt
from dl4all.ops.elementwise.logic import where
from dl4all.ops.elementwise.rounding import abs
from dl4all.ops.elementwise.transcendental import tanh
from dl4all.ops.random.distributions import uniform_


@export("Tensor", "F")
def hardshrink(input: Any, lambd: float = 0.5) -> Any:
    """The elements whose size is above a limit, 0 for the others.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.functional.hardshrink(dl.tensor([-1.0, 0.25, 2.0])).tolist()
        [-1.0, 0.0, 2.0]
    """
    return where(le(abs(input), lambd), 0.0, input)


@export("F")
def softshrink(input: Any, lambd: float = 0.5) -> Any:
    """The elements moved towards 0 by a distance, those that are nearer to 0 as 0.

    Raises:
        ArgumentError: the distance is negative.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.functional.softshrink(dl.tensor([-1.0, 0.25, 2.0])).tolist()
        [-0.5, 0.0, 1.5]
    """
    if lambd < 0:
        raise ArgumentError(f"[softshrink] lambd must be at least 0, got {lambd}")
    inside = mul(input, 0.0)  # and not 0, so that nan stays nan
    return where(gt(input, lambd), input - lambd, where(lt(input, -lambd), input + lambd, inside))


@export("F")
def tanhshrink(input: Any) -> Any:
    """Each element less its hyperbolic tangent.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.functional.tanhshrink(dl.tensor([0.0, 100.0])).tolist()
        [0.0, 99.0]
    """
    return sub(input, tanh(input))


@export("F", "F_")
def rrelu(
    input: Any, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False, inplace: bool = False
) -> Any:
    """The elements above 0, the others times a slope: in training a random one for each.

    Xu et al., arXiv:1505.00853.

    Args:
        input: floats.
        lower, upper: between which slopes lie; without training each is their mean.
        training: whether slopes are random.
        inplace: is taken as PyTorch has it; the result has memory of its own all the same.

    Raises:
        ArgumentError: `lower` is above `upper`.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.functional.rrelu(dl.tensor([-2.0, 3.0]), 0.25, 0.75).tolist()
        [-1.0, 3.0]
    """
    if lower > upper:
        raise ArgumentError(f"[rrelu] lower must not be above upper, got {lower} and {upper}")
    if not training:
        return leaky_relu(input, negative_slope=(lower + upper) / 2)
    made = empty(type(input).result_class, input.shape, input.dtype, input.device)
    slopes = uniform_(made, lower, upper) if lower < upper else made.fill_(lower)
    return where(ge(input, 0), input, mul(input, slopes))
