"""Operators with a number on the left: ``3 - x``, ``2 ** x``."""

from __future__ import annotations

from typing import TypeVar

from dl4all.functions.elementwise.integer_arithmetic import bitwise_left_shift, bitwise_right_shift
from dl4all.ops.core.tensor_base import Scalar, TensorBase
from dl4all.ops.elementwise.arithmetic import sub, true_divide
from dl4all.ops.elementwise.rounding import floor_divide, remainder
from dl4all.ops.elementwise.transcendental import pow
from dl4all.ops.linalg.matrix_product import matmul

T = TypeVar("T", bound="ReflectedOperators")


class ReflectedOperators(TensorBase):
    """The operators that do not commute; of the others a tensor has one method for both sides."""

    __slots__ = ()

    def __rsub__(self: T, other: Scalar) -> T:
        """A number minus each element.

        Example:
            >>> import dl4all as dl
            >>> (3 - dl.tensor([1.0, 2.0])).tolist()
            [2.0, 1.0]
        """
        result: T = sub(other, self)
        return result

    def __rtruediv__(self: T, other: Scalar) -> T:
        """A number divided by each element.

        Example:
            >>> import dl4all as dl
            >>> (4 / dl.tensor([1.0, 2.0])).tolist()
            [4.0, 2.0]
        """
        result: T = true_divide(other, self)
        return result

    def __rpow__(self: T, other: Scalar) -> T:
        """A number to the power of each element.

        Example:
            >>> import dl4all as dl
            >>> (2 ** dl.tensor([1, 3])).tolist()
            [2, 8]
        """
        result: T = pow(other, self)
        return result

    def __rmod__(self: T, other: Scalar) -> T:
        """The remainder of a number divided by each element.

        Example:
            >>> import dl4all as dl
            >>> (5 % dl.tensor([2, 3])).tolist()
            [1, 2]
        """
        result: T = remainder(other, self)
        return result

    def __rfloordiv__(self: T, other: Scalar) -> T:
        """A number divided by each element, rounded down.

        Example:
            >>> import dl4all as dl
            >>> (5 // dl.tensor([2, 3])).tolist()
            [2, 1]
        """
        result: T = floor_divide(other, self)
        return result

    def __rmatmul__(self: T, other: TensorBase) -> T:
        """The matrix product with the tensor on the right.

        Example:
            >>> import dl4all as dl
            >>> x = dl.tensor([1.0, 2.0])
            >>> x.__rmatmul__(x).item()
            5.0
        """
        result: T = matmul(other, self)
        return result

    def __rlshift__(self: T, other: Scalar) -> T:
        """The bits of an int moved to higher places.

        Example:
            >>> import dl4all as dl
            >>> (3 << dl.tensor([1, 2])).tolist()
            [6, 12]
        """
        result: T = bitwise_left_shift(other, self)
        return result

    def __rrshift__(self: T, other: Scalar) -> T:
        """The bits of an int moved to lower places.

        Example:
            >>> import dl4all as dl
            >>> (12 >> dl.tensor([1, 2])).tolist()
            [6, 3]
        """
        result: T = bitwise_right_shift(other, self)
        return result
