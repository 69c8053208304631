"""Logical and bitwise operations, ``where`` and ``masked_fill``."""

from __future__ import annotations

import numpy as np

from dl4all.errors import DTypeError
from dl4all.ops.core.dtypes import kind_of
from dl4all.ops.core.exports import export
from dl4all.ops.core.op import NUMBERS
from dl4all.ops.core.tensor_base import Array, Scalar, TensorBase
from dl4all.ops.elementwise.declare import elementwise, same_for_dtypes


def _logical_expressions(expression: str) -> dict[str, str]:
    """GLSL by dtype for an expression in ``A`` and ``B``, the truth of a and b: not 0; nan is true."""
    floats = expression.replace("A", "!(a == 0.0)").replace("B", "!(b == 0.0)")
    ints = expression.replace("A", "(a != 0)").replace("B", "(b != 0)")
    longs = expression.replace("A", "is_true(a)").replace("B", "is_true(b)")
    return {"float32": floats, **dict.fromkeys(("int32", "uint8", "bool"), ints), "int64": longs}


@export("dl", "Tensor", "Tensor_", out=True)
@elementwise(glsl=_logical_expressions("A && B"), result="bool")
def logical_and(input: Array, other: Array) -> Array:
    """Whether both elements are true, that is, not 0.

    Example:
        >>> import dl4all as dl
        >>> dl.logical_and(dl.tensor([True, True]), dl.tensor([True, False])).tolist()
        [True, False]
    """
    return np.logical_and(input, other)


@export("dl", "Tensor", "Tensor_", out=True)
@elementwise(glsl=_logical_expressions("A || B"), result="bool")
def logical_or(input: Array, other: Array) -> Array:
    """Whether at least one of both elements is true, that is, not 0.

    Example:
        >>> import dl4all as dl
        >>> dl.logical_or(dl.tensor([True, False]), dl.tensor([False, False])).tolist()
        [True, False]
    """
    return np.logical_or(input, other)


@export("dl", "Tensor", "Tensor_", out=True)
@elementwise(glsl=_logical_expressions("A != B"), result="bool")
def logical_xor(input: Array, other: Array) -> Array:
    """Whether exactly one of both elements is true, that is, not 0.

    Example:
        >>> import dl4all as dl
        >>> dl.logical_xor(dl.tensor([True, True]), dl.tensor([True, False])).tolist()
        [False, True]
    """
    return np.logical_xor(input, other)


@export("dl", "Tensor", "Tensor_", out=True)
@elementwise(
    glsl={
        "float32": "x == 0.0",
        **dict.fromkeys(("int32", "uint8", "bool"), "x == 0"),
        "int64": "!is_true(x)",
    },
    result="bool",
)
def logical_not(input: Array) -> Array:
    """Whether elements are false, that is, 0.

    Example:
        >>> import dl4all as dl
        >>> dl.logical_not(dl.tensor([0.0, 2.0])).tolist()
        [True, False]
    """
    return np.logical_not(input)


BITWISE_DTYPES = ("int32", "int64", "uint8", "bool")


@export("dl", "Tensor", "Tensor_", out=True)
@elementwise(glsl=dict.fromkeys(BITWISE_DTYPES, "a & b"), kinds="biu")
def bitwise_and(input: Array, other: Array) -> Array:
    """The bits that are set in both elements, as ``&``; for bools, whether both are true.

    Example:
        >>> import dl4all as dl
        >>> (dl.tensor([6, 5]) & 3).tolist()
        [2, 1]
    """
    return np.bitwise_and(input, other)


@export("dl", "Tensor", "Tensor_", out=True)
@elementwise(glsl=dict.fromkeys(BITWISE_DTYPES, "a | b"), kinds="biu")
def bitwise_or(input: Array, other: Array) -> Array:
    """The bits that are set in at least one of both elements, as ``|``; for bools, whether one is true.

    Example:
        >>> import dl4all as dl
        >>> (dl.tensor([6, 5]) | 3).tolist()
        [7, 7]
    """
    return np.bitwise_or(input, other)


@export("dl", "Tensor", "Tensor_", out=True)
@elementwise(glsl=dict.fromkeys(BITWISE_DTYPES, "a ^ b"), kinds="biu")
def bitwise_xor(input: Array, other: Array) -> Array:
    """The bits that are set in exactly one of both elements, as ``^``; for bools, whether they differ.

    Example:
        >>> import dl4all as dl
        >>> (dl.tensor([6, 5]) ^ 3).tolist()
        [5, 6]
    """
    return np.bitwise_xor(input, other)


@export("dl", "Tensor", "Tensor_", out=True)
@elementwise(glsl={"int32": "~x", "int64": "~x", "uint8": "~x", "bool": "x == 0"}, kinds="biu")
def bitwise_not(input: Array) -> Array:
    """Each element with all bits inverted, as ``~``; for bools, the logical negation.

    Example:
        >>> import dl4all as dl
        >>> (~dl.tensor([True, False])).tolist()
        [False, True]
    """
    return np.bitwise_not(input)


@export("dl", out=True)
@elementwise(
    glsl=same_for_dtypes("a != 0 ? b : c", "uint8", "bool", "int64"),
    conditions=("condition",),
)
def where(condition: Array, input: Array, other: Array) -> Array:
    """The elements of `input` where `condition`, a tensor of bools, is true, and of `other` elsewhere.

    Example:
        >>> import dl4all as dl
        >>> x = dl.tensor([1.0, -2.0])
        >>> dl.where(x > 0, x, 0.0).tolist()
        [1.0, 0.0]

        A condition alone gives the indices where it is true: :func:`nonzero` with ``as_tuple=True``.

        >>> dl.where(x > 0)[0].tolist()
        [0]
    """
    return np.where(condition, input, other)


where.defgrad(
    None, lambda g, condition: where(condition, g, 0.0), lambda g, condition: where(condition, 0.0, g)
)


@export("dl", "Tensor", "Tensor_")
def masked_fill(input: TensorBase, mask: TensorBase, value: Array | Scalar) -> Array:
    """The elements, replaced by `value`, a number or a tensor of one element, where `mask` is true.

    A number is converted to the input's dtype.

    Raises:
        DTypeError: the mask is not bool, or the value is a tensor of a higher kind than the input.

    Example:
        >>> import dl4all as dl
        >>> x = dl.tensor([1.0, -2.0])
        >>> dl.masked_fill(x, x < 0, 0.0).tolist()
        [1.0, 0.0]
    """
    if isinstance(value, NUMBERS) and kind_of(input.dtype) != "f":
        value = bool(value) if kind_of(input.dtype) == "b" else int(value)
    filled = where(mask, value, input)
    if filled.dtype != input.dtype:
        raise DTypeError(
            f"[masked_fill] the value {value!r} does not fit into {input.dtype}; convert the input first"
        )
    return filled
