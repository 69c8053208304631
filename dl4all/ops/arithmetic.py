"""Arithmetic on elements, with broadcasting."""

from __future__ import annotations

import numpy as np

from dl4all.ops.base import Array
from dl4all.ops.elementwise import COPY_RANKS, elementwise


@elementwise(glsl="a + b")
def add(a: Array, b: Array) -> Array:
    """Sum of each pair of elements; shapes broadcast, and one operand may be a number.

    Example:
        >>> import dl4all as dl
        >>> dl.add(dl.tensor([[1.0], [2.0]]), dl.tensor([10.0, 20.0])).tolist()
        [[11.0, 21.0], [12.0, 22.0]]
    """
    return np.add(a, b)


@elementwise(glsl="a - b", booleans=False)
def sub(a: Array, b: Array) -> Array:
    """Difference of each pair of elements; shapes broadcast, and one operand may be a number.

    Example:
        >>> import dl4all as dl
        >>> dl.sub(1.0, dl.tensor([1.0, 3.0])).tolist()
        [0.0, -2.0]
    """
    return np.subtract(a, b)


@elementwise(glsl="a * b")
def mul(a: Array, b: Array) -> Array:
    """Product of each pair of elements; shapes broadcast, and one operand may be a number.

    Example:
        >>> import dl4all as dl
        >>> dl.mul(dl.tensor([1.5, 2.0]), 2).tolist()
        [3.0, 4.0]
    """
    return np.multiply(a, b)


@elementwise(glsl="a / b", promotion="float")
def div(a: Array, b: Array) -> Array:
    """Quotient of each pair of elements, always a float; division by zero gives inf or nan.

    Example:
        >>> import dl4all as dl
        >>> dl.div(dl.tensor([1, 3]), 2).tolist()
        [0.5, 1.5]
    """
    return np.divide(a, b)


@elementwise(glsl="-x", booleans=False)
def neg(x: Array) -> Array:
    """Each element with the opposite sign.

    Example:
        >>> import dl4all as dl
        >>> dl.neg(dl.tensor([1.0, -2.0])).tolist()
        [-1.0, 2.0]
    """
    return np.negative(x)


@elementwise(glsl="x", ranks=COPY_RANKS)
def clone(x: Array) -> Array:
    """A contiguous copy.

    Example:
        >>> import dl4all as dl
        >>> dl.clone(dl.tensor([[1.0, 2.0], [3.0, 4.0]]).T).tolist()
        [[1.0, 3.0], [2.0, 4.0]]
    """
    return np.array(x, order="C")
