"""The base class of layers that are one function of a tensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from dl4all.nn.module import Module
from dl4all.tensor.tensor import Tensor


class FunctionLayer(Module):
    """A function as a layer; the output has the input's shape unless the function says otherwise.

    A subclass names the function and passes the function's arguments, which become attributes. Layers accept
    `inplace` where PyTorch's do, but it has no effect: the result always has memory of its own, because
    gradients need the values that would be overwritten.
    """

    function: ClassVar[Callable[..., Tensor]]

    def __init__(self, **arguments: Any) -> None:
        super().__init__()
        self._arguments = tuple(arguments)
        for name, value in arguments.items():
            setattr(self, name, value)

    def forward(self, x: Tensor) -> Tensor:
        arguments = {name: getattr(self, name) for name in self._arguments}
        return type(self).function(x, **arguments)

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in self._arguments)
