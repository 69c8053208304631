"""Functions of one tensor that are made of others, and questions about single elements."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from dl4all.errors import ArgumentError
from dl4all.ops.core import tape
from dl4all.ops.core.exports import export
from dl4all.ops.elementwise.arithmetic import mul, sub, true_divide
from dl4all.ops.elementwise.comparison import clamp, eq, lt
from dl4all.ops.elementwise.logic import logical_and, logical_or, where
from dl4all.ops.elementwise.rounding import abs, sign, trunc, zero
from dl4all.ops.elementwise.transcendental import log, log1p, reciprocal, rsqrt, sin, sqrt
from dl4all.ops.memory.conversion import cast

LARGE = 1e6  # from here on, sqrt(x * x + 1) and sqrt(x * x - 1) are x in float32, and x * x may overflow


def floats(input: Any) -> Any:
    """Integers and bools as float32."""
    return input if input.dtype.kind == "f" else cast(input, "float32")


def _curve(name: str, input: Any, forward: Callable[[Any], Any], slope: Callable[[Any], Any]) -> Any:
    """A function whose derivative is known, which holds where a chain of ops would give nan."""
    x = floats(input)
    with tape.gradients(False):
        made = forward(x)
    tape.add_node(name, [x], [made], lambda grads, saved, needs: [mul(grads[0], slope(saved[0]))], (x,))
    return made


def _asinh(x: Any) -> Any:
    size = abs(x)
    small = where(size > LARGE, 1.0, size)
    near = log1p(small + true_divide(small * small, sqrt(small * small + 1) + 1))
    far = log(where(size > LARGE, size, 1.0)) + math.log(2)
    # Added to x * 0, so that nan stays nan and -0.0 has its sign.
    return where(eq(x, 0), x, sign(x) * where(size > LARGE, far, near)) + where(eq(x, x), 0.0, x)


@export("dl", "Tensor", "Tensor_", aliases=("arcsinh",))
def asinh(input: Any) -> Any:
    """The number whose hyperbolic sine each element is.

    Example:
        >>> import dl4all as dl
        >>> dl.asinh(dl.tensor([0.0, 1.1752012])).round(decimals=4).tolist()
        [0.0, 1.0]
    """
    return _curve("asinh", input, _asinh, lambda x: rsqrt(x * x + 1))


def _acosh(x: Any) -> Any:
    above = sub(where(x > LARGE, 1.0, x), 1)
    near = log1p(above + sqrt(above * (above + 2)))
    far = log(where(x > LARGE, x, 1.0)) + math.log(2)
    return where(x < 1, math.nan, where(x > LARGE, far, near))


@export("dl", "Tensor", "Tensor_", aliases=("arccosh",))
def acosh(input: Any) -> Any:
    """The number from 0 on whose hyperbolic cosine each element is; nan below 1.

    Example:
        >>> import dl4all as dl
        >>> dl.acosh(dl.tensor([1.0, 1.5430806])).round(decimals=4).tolist()
        [0.0, 1.0]
    """
    return _curve("acosh", input, _acosh, lambda x: rsqrt((x - 1) * (x + 1)))


def _atanh(x: Any) -> Any:
    size = abs(x)
    return where(eq(x, 0), x, 0.5 * sign(x) * log1p(true_divide(2 * size, 1 - size))) + where(
        eq(x, x), 0.0, x
    )


@export("dl", "Tensor", "Tensor_", aliases=("arctanh",))
def atanh(input: Any) -> Any:
    """The number whose hyperbolic tangent each element is; infinite for 1 and -1, nan beyond.

    Example:
        >>> import dl4all as dl
        >>> dl.atanh(dl.tensor([0.0, 0.7615942])).round(decimals=4).tolist()
        [0.0, 1.0]
    """
    return _curve("atanh", input, _atanh, lambda x: reciprocal((1 - x) * (1 + x)))


arcsinh = asinh
arccosh = acosh
arctanh = atanh


@export("dl", "Tensor", "Tensor_")
def frac(input: Any) -> Any:
    """The part of each element behind the point, with its sign.

    Example:
        >>> import dl4all as dl
        >>> dl.frac(dl.tensor([1.5, -2.25])).tolist()
        [0.5, -0.25]
    """
    return sub(input, trunc(input))


@export("dl", "Tensor", "Tensor_")
def deg2rad(input: Any) -> Any:
    """Angles in degrees as radians.

    Example:
        >>> import dl4all as dl
        >>> dl.deg2rad(dl.tensor([180.0])).round(decimals=4).tolist()
        [3.1415998935699463]
    """
    return mul(input, math.pi / 180)


@export("dl", "Tensor", "Tensor_")
def rad2deg(input: Any) -> Any:
    """Angles in radians as degrees.

    Example:
        >>> import dl4all as dl
        >>> dl.rad2deg(dl.tensor([0.0])).tolist()
        [0.0]
    """
    return mul(input, 180 / math.pi)


@export("dl", "Tensor", "Tensor_")
def sinc(input: Any) -> Any:
    """``sin(pi x) / (pi x)`` of each element, 1 at 0.

    Example:
        >>> import dl4all as dl
        >>> dl.sinc(dl.tensor([0.0, 0.5])).round(decimals=4).tolist()
        [1.0, 0.6366000175476074]
    """
    x = floats(input)
    origin = eq(x, 0)
    angle = where(origin, 1.0, x) * math.pi
    return where(origin, 1.0, true_divide(sin(angle), angle))


@export("dl", "Tensor", "Tensor_")
def logit(input: Any, eps: float | None = None) -> Any:
    """The logarithm of ``x / (1 - x)``, which :func:`sigmoid` turns back.

    Args:
        input: floats from 0 to 1.
        eps: elements are taken to be no closer to 0 and 1 than this.

    Example:
        >>> import dl4all as dl
        >>> dl.logit(dl.tensor([0.5, 0.0]), eps=0.25).round(decimals=4).tolist()
        [0.0, -1.0986000299453735]
    """
    x = floats(input)
    if eps is not None:
        x = clamp(x, eps, 1 - eps)
    return log(true_divide(x, 1 - x))


@export("dl", "Tensor")
def signbit(input: Any) -> Any:
    """Whether elements are below 0, or -0.0 where the device keeps its sign.

    Example:
        >>> import dl4all as dl
        >>> dl.signbit(dl.tensor([1.0, -2.0, 0.0])).tolist()
        [False, True, False]
    """
    below = lt(input, 0)
    if input.dtype.kind != "f":
        return below
    return logical_or(below, logical_and(eq(input, 0), lt(reciprocal(input), 0)))


@export("dl", "Tensor")
def isneginf(input: Any) -> Any:
    """Whether elements are minus infinity.

    Example:
        >>> import dl4all as dl
        >>> dl.isneginf(dl.tensor([1.0, -float("inf")])).tolist()
        [False, True]
    """
    return eq(input, -math.inf)


@export("dl", "Tensor")
def isposinf(input: Any) -> Any:
    """Whether elements are plus infinity.

    Example:
        >>> import dl4all as dl
        >>> dl.isposinf(dl.tensor([1.0, float("inf")])).tolist()
        [False, True]
    """
    return eq(input, math.inf)


@export("dl", "Tensor")
def isreal(input: Any) -> Any:
    """True for every element, as there are no complex numbers.

    Example:
        >>> import dl4all as dl
        >>> dl.isreal(dl.tensor([1.0, float("nan")])).tolist()
        [True, True]
    """
    return eq(zero(input), 0)


@export("dl")
def is_nonzero(input: Any) -> bool:
    """Whether the only element is not 0.

    Raises:
        ArgumentError: there is not exactly one.

    Example:
        >>> import dl4all as dl
        >>> dl.is_nonzero(dl.tensor([2.0]))
        True
    """
    if input.numel() != 1:
        raise ArgumentError(f"[is_nonzero] expected one element, the shape is {input.shape}")
    return bool(input.item())


@export("dl", "Tensor")
def positive(input: Any) -> Any:
    """The input itself.

    Raises:
        ArgumentError: it is of bools.

    Example:
        >>> import dl4all as dl
        >>> dl.positive(dl.tensor([1.0, -2.0])).tolist()
        [1.0, -2.0]
    """
    if input.dtype.kind == "b":
        raise ArgumentError("[positive] expected numbers, got bool; convert with .to('int64')")
    return input
