"""The base class of layers that are one function of a tensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from dl4all.nn.module import Module
from dl4all.tensor.tensor import Tensor


class FunctionLayer(Module):
    """A function as a layer: any shape in, the same out unless the function says otherwise.

    A subclass names the function and hands its arguments on, which become attributes. PyTorch's `inplace` is
    taken where PyTorch takes it and changes nothing: results have memory of their own, because gradients
    need what would be overwritten.
    """

    function: ClassVar[Callable[..., Any]]

    def __init__(self, **arguments: Any) -> None:
        super().__init__()
        self._arguments = tuple(arguments)
        for name, value in arguments.items():
            setattr(self, name, value)

    def forward(self, x: Tensor) -> Tensor:
        arguments = {name: getattr(self, name) for name in self._arguments}
        return type(self).function(x, **arguments)  # type: ignore[no-any-return]

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in self._arguments)
