"""Elementwise arithmetic with broadcasting, and ``clone``."""

from __future__ import annotations

from typing import Any

import numpy as np

from dl4all.ops.core.exports import export
from dl4all.ops.core.op import example, primitives
from dl4all.ops.core.tensor_base import Array
from dl4all.ops.elementwise.declare import Number, elementwise, same_for_dtypes
from dl4all.ops.elementwise.kernels import CLONE_RANKS


def _scale(value: Any, factor: Any) -> Any:
    """``value * factor``, without a multiplication by 1."""
    return value if factor == 1 else value * factor


@export("dl", "Tensor", "Tensor_", out=True)
@elementwise(
    glsl=same_for_dtypes("a + p.alpha * b")
    | {"int64": "plus(a, times(widened(p.alpha), b))", "bool": "a | (p.alpha * b != 0 ? 1 : 0)"},
    grad=(lambda g: g, lambda g, alpha: _scale(g, alpha)),
)
def add(input: Array, other: Array, *, alpha: Number = 1) -> Array:
    """Sum of each pair of elements, those of `other` times `alpha`; one operand may be a number.

    Example:
        >>> import dl4all as dl
        >>> dl.add(dl.tensor([[1.0], [2.0]]), dl.tensor([10.0, 20.0])).tolist()
        [[11.0, 21.0], [12.0, 22.0]]
    """
    return np.add(input, _scale(other, alpha))


@export("dl", "Tensor", "Tensor_", aliases=("subtract",), out=True)
@elementwise(
    glsl=same_for_dtypes("a - p.alpha * b") | {"int64": "minus(a, times(widened(p.alpha), b))"},
    kinds="iuf",
    grad=(lambda g: g, lambda g, alpha: _scale(-g, alpha)),
)
def sub(input: Array, other: Array, *, alpha: Number = 1) -> Array:
    """Difference of each pair of elements, those of `other` times `alpha`; one operand may be a number.

    Example:
        >>> import dl4all as dl
        >>> dl.sub(1.0, dl.tensor([1.0, 3.0])).tolist()
        [0.0, -2.0]
    """
    return np.subtract(input, _scale(other, alpha))


@export("dl", "Tensor", "Tensor_", aliases=("multiply",), out=True)
@elementwise(
    glsl=same_for_dtypes("a * b") | {"int64": "times(a, b)", "bool": "a & b"},
    grad=(lambda g, other: g * other, lambda g, input: g * input),
)
def mul(input: Array, other: Array) -> Array:
    """Product of each pair of elements; shapes broadcast, and one operand may be a number.

    Example:
        >>> import dl4all as dl
        >>> dl.mul(dl.tensor([1.5, 2.0]), 2).tolist()
        [3.0, 4.0]
    """
    return np.multiply(input, other)


@export("dl", "Tensor", "Tensor_", out=True)
@elementwise(
    glsl="a / b",
    promotion="float",
    # Of the operands, so that the result may be changed in place.
    grad=(lambda g, other: g / other, lambda g, input, other: -g * (input / other) / other),
)
def true_divide(input: Array, other: Array) -> Array:
    """Quotient of each pair of elements, always a float; division by zero gives inf or nan.

    Example:
        >>> import dl4all as dl
        >>> dl.div(dl.tensor([1, 3]), 2).tolist()
        [0.5, 1.5]
    """
    return np.divide(input, other)


true_divide.define_result_gradient(
    (lambda g, other: g / other, lambda g, other, result: -g * result / other), holds=lambda: True
)


@export("dl", "Tensor", "Tensor_", aliases=("negative",), out=True)
@elementwise(glsl=same_for_dtypes("-x") | {"int64": "opposite(x)"}, kinds="iuf", grad=lambda g: -g)
def neg(input: Array) -> Array:
    """Each element with the opposite sign.

    Example:
        >>> import dl4all as dl
        >>> dl.neg(dl.tensor([1.0, -2.0])).tolist()
        [-1.0, 2.0]
    """
    return np.negative(input)


@export("dl", "Tensor")
@elementwise(
    glsl=same_for_dtypes("x", "uint8", "bool", "int64"),
    kinds="biufs",
    ranks=CLONE_RANKS,
    transposes=True,
    examples=(example((8, 12)), example((4, 5, 3, 8)), example((2, 3, 2, 5, 3)), example((2, 3, 2, 3, 4))),
    grad=lambda g: g,
)
def clone(input: Array) -> Array:
    """A contiguous copy.

    Example:
        >>> import dl4all as dl
        >>> dl.clone(dl.tensor([[1.0, 2.0], [3.0, 4.0]]).T).tolist()
        [[1.0, 3.0], [2.0, 4.0]]
    """
    return np.array(input, order="C")


primitives.clone = clone


# Fused multiplications and additions


@export("dl", "Tensor", "Tensor_", out=True, autocast="widest")
@elementwise(
    glsl="a + p.value * b * c",
    grad=(
        lambda g: g,
        lambda g, tensor2, value: _scale(g * tensor2, value),
        lambda g, tensor1, value: _scale(g * tensor1, value),
    ),
)
def addcmul(input: Array, tensor1: Array, tensor2: Array, *, value: Number = 1) -> Array:
    """``input + value * tensor1 * tensor2``, elementwise.

    Example:
        >>> import dl4all as dl
        >>> dl.addcmul(dl.tensor([1.0]), dl.tensor([2.0]), dl.tensor([3.0]), value=0.5).tolist()
        [4.0]
    """
    return np.add(input, np.multiply(_scale(tensor1, value), tensor2))


@export("dl", "Tensor", "Tensor_", out=True, autocast="widest")
@elementwise(
    glsl="a + p.value * b / c",
    promotion="float",
    grad=(
        lambda g: g,
        lambda g, tensor2, value: _scale(g / tensor2, value),
        lambda g, tensor1, tensor2, value: _scale(-g * tensor1 / (tensor2 * tensor2), value),
    ),
)
def addcdiv(input: Array, tensor1: Array, tensor2: Array, *, value: Number = 1) -> Array:
    """``input + value * tensor1 / tensor2``, elementwise.

    Example:
        >>> import dl4all as dl
        >>> dl.addcdiv(dl.tensor([1.0]), dl.tensor([3.0]), dl.tensor([2.0]), value=2.0).tolist()
        [4.0]
    """
    return np.add(input, np.divide(_scale(tensor1, value), tensor2))


# Computed from the nearer end, so that the result is exact at both ends.
@export("dl", "Tensor", "Tensor_", out=True)
@elementwise(
    glsl="abs(c) < 0.5 ? a + c * (b - a) : b - (b - a) * (1.0 - c)",
    promotion="float",
    grad=(
        lambda g, weight: g * (1 - weight),
        lambda g, weight: g * weight,
        lambda g, input, end: g * (end - input),
    ),
)
def lerp(input: Array, end: Array, weight: Array) -> Array:
    """Linear interpolation, ``input + weight * (end - input)``; the weight may be a number.

    Example:
        >>> import dl4all as dl
        >>> dl.lerp(dl.tensor([0.0, 1.0]), dl.tensor([10.0, 2.0]), 0.5).tolist()
        [5.0, 1.5]
    """
    distance = end - input
    return np.where(np.abs(weight) < 0.5, input + weight * distance, end - distance * (1 - weight))
