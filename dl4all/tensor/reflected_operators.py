"""Operators with a number on the left: ``3 - x``, ``2 ** x``."""

from __future__ import annotations

from typing import Any

from dl4all.ops import elementwise, linalg
from dl4all.ops.core.tensor_base import Scalar, TensorBase


class ReflectedOperators(TensorBase):
    """The operators that do not commute; of the others a tensor has one method for both sides."""

    __slots__ = ()

    def __rsub__(self, other: Scalar) -> Any:
        """A number minus each element.

        Example:
            >>> import dl4all as dl
            >>> (3 - dl.tensor([1.0, 2.0])).tolist()
            [2.0, 1.0]
        """
        return elementwise.sub(other, self)

    def __rtruediv__(self, other: Scalar) -> Any:
        """A number divided by each element.

        Example:
            >>> import dl4all as dl
            >>> (4 / dl.tensor([1.0, 2.0])).tolist()
            [4.0, 2.0]
        """
        return elementwise.true_divide(other, self)

    def __rpow__(self, other: Scalar) -> Any:
        """A number to the power of each element.

        Example:
            >>> import dl4all as dl
            >>> (2 ** dl.tensor([1, 3])).tolist()
            [2, 8]
        """
        return elementwise.pow(other, self)

    def __rmod__(self, other: Scalar) -> Any:
        """The remainder of a number divided by each element.

        Example:
            >>> import dl4all as dl
            >>> (5 % dl.tensor([2, 3])).tolist()
            [1, 2]
        """
        return elementwise.remainder(other, self)

    def __rfloordiv__(self, other: Scalar) -> Any:
        """A number divided by each element, rounded down.

        Example:
            >>> import dl4all as dl
            >>> (5 // dl.tensor([2, 3])).tolist()
            [2, 1]
        """
        return elementwise.floor_divide(other, self)

    def __rmatmul__(self, other: TensorBase) -> Any:
        """The matrix product with the tensor on the right.

        Example:
            >>> import dl4all as dl
            >>> x = dl.tensor([1.0, 2.0])
            >>> x.__rmatmul__(x).item()
            5.0
        """
        return linalg.matmul(other, self)
