"""Arguments of ops that stand for tensors, such as the classes of a loss."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from dl4all.ops.core.tensor_base import TensorBase

NDArray = npt.NDArray[Any]


class TensorArgument:
    """An argument of an op that holds a tensor: its elements are read when the op's body runs."""

    __slots__ = ()

    def tensor_operand(self) -> TensorBase | None:
        """The tensor that the body reads; None if the argument knows its elements."""
        raise NotImplementedError

    def known_elements(self) -> NDArray | None:
        """The elements, where they are those of the host and no tensor's."""
        return None

    def on(self, like: TensorBase) -> TensorBase:
        """A tensor of the elements on the device of `like`, as kernels read it."""
        raise NotImplementedError

    @classmethod
    def with_elements(cls, array: NDArray) -> Any:
        """An argument as bodies take it, with these elements in place of a tensor's."""
        raise NotImplementedError


class Elements(TensorArgument):
    """Stands for an argument that is a tensor: the body gets its array."""

    __slots__ = ()

    @classmethod
    def with_elements(cls, array: NDArray) -> NDArray:
        return array
