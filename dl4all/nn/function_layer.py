"""The base class of layers that are one function of a tensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from dl4all.nn.module import Module
from dl4all.tensor.tensor import Tensor


class FunctionLayer(Module):
    """A function as a layer; the output has the input's shape unless the function says otherwise.

    A subclass names the function and passes its arguments, which become attributes. With `inplace`,
    which layers have where PyTorch's do, the input's memory holds the result afterwards.
    """

    function: ClassVar[Callable[..., Tensor]]

    def __init__(self, **arguments: Any) -> None:
        super().__init__()
        self._arguments = tuple(arguments)
        for name, value in arguments.items():
            setattr(self, name, value)

    def forward(self, input: Tensor) -> Tensor:
        arguments = {name: getattr(self, name) for name in self._arguments}
        return type(self).function(input, **arguments)

    def extra_repr(self) -> str:
        shown = {name: getattr(self, name) for name in self._arguments}
        if shown.get("inplace") is False:  # shown where it is set, as in PyTorch
            del shown["inplace"]
        return ", ".join(f"{name}={value!r}" for name, value in shown.items())
