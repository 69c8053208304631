"""Arithmetic of integers: shifts of bits, common divisors and multiples."""

from __future__ import annotations

import numpy as np

from dl4all.errors import DTypeError
from dl4all.functions.host import computed_on_host, to_device_of
from dl4all.ops.core.dtypes import kind_of
from dl4all.ops.core.exports import export
from dl4all.ops.core.tensor_base import Array, Scalar, TensorBase
from dl4all.ops.core.vmap_hook import reads


@export("dl", "Tensor", "Tensor_")
@reads("input", "other")
@computed_on_host("bitwise_left_shift")
def bitwise_left_shift(input: Array | Scalar, other: Array | Scalar) -> Array:
    """The bits of integers moved to higher places: ``input * 2 ** other``, without what passes the end.

    Raises:
        DTypeError: an operand is not of integers.

    Example:
        >>> import dl4all as dl
        >>> dl.bitwise_left_shift(dl.tensor([1, -3]), 2).tolist()
        [4, -12]
    """
    return _of_integers("bitwise_left_shift", np.left_shift, input, other)


@export("dl", "Tensor", "Tensor_")
@reads("input", "other")
@computed_on_host("bitwise_right_shift")
def bitwise_right_shift(input: Array | Scalar, other: Array | Scalar) -> Array:
    """The bits of integers moved to lower places: ``input // 2 ** other``.

    Raises:
        DTypeError: an operand is not of integers.

    Example:
        >>> import dl4all as dl
        >>> dl.bitwise_right_shift(dl.tensor([9, -3]), 1).tolist()
        [4, -2]
    """
    return _of_integers("bitwise_right_shift", np.right_shift, input, other)


@export("dl", "Tensor", "Tensor_")
@reads("input", "other")
@computed_on_host("gcd")
def gcd(input: Array, other: Array) -> Array:
    """The greatest common divisor of integers; their shapes broadcast.

    Raises:
        DTypeError: an operand is not of integers.

    Example:
        >>> import dl4all as dl
        >>> dl.gcd(dl.tensor([12, 5]), dl.tensor([8, 10])).tolist()
        [4, 5]
    """
    return _of_integers("gcd", np.gcd, input, other)


@export("dl", "Tensor", "Tensor_")
@reads("input", "other")
@computed_on_host("lcm")
def lcm(input: Array, other: Array) -> Array:
    """The least common multiple of integers; their shapes broadcast.

    Raises:
        DTypeError: an operand is not of integers.

    Example:
        >>> import dl4all as dl
        >>> dl.lcm(dl.tensor([4, 5]), dl.tensor([6, 10])).tolist()
        [12, 10]
    """
    return _of_integers("lcm", np.lcm, input, other)


def _of_integers(name: str, function: np.ufunc, input: Array | Scalar, other: Array | Scalar) -> Array:
    """A NumPy function of integers on the host, in the dtype that the operands have in common.

    Raises:
        DTypeError: an operand is not of integers, or there is no tensor.
    """
    operands = (input, other)
    tensors = [operand for operand in operands if isinstance(operand, TensorBase)]
    if not tensors or any(kind_of(tensor.dtype) not in "iu" for tensor in tensors):
        found = ", ".join(str(getattr(operand, "dtype", type(operand).__name__)) for operand in operands)
        raise DTypeError(f"[{name}] expected tensors of integers, got {found}; convert with .long()")
    dtype = np.result_type(*(tensor.dtype for tensor in tensors))
    arrays = [
        (operand.on_host() if isinstance(operand, TensorBase) else np.asarray(operand)).astype(dtype)
        for operand in operands
    ]
    return to_device_of(
        tensors[0], np.ascontiguousarray(function(*arrays)).reshape(np.broadcast(*arrays).shape)
    )
