"""Modules of modules."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dl4all.errors import ArgumentError
from dl4all.nn.module import Module


class Sequential(Module):
    """Layers one after the other, named ``0``, ``1``, ... in the state dict.

    Raises:
        ArgumentError: one of them is not a module, such as a plain function.

    Example:
        >>> import dl4all as dl
        >>> net = dl.nn.Sequential(dl.nn.Linear(4, 3), dl.nn.ReLU())
        >>> net(dl.ones(2, 4, device="cpu")).shape
        (2, 3)
    """

    def __init__(self, *layers: Module) -> None:
        super().__init__()
        for index, layer in enumerate(layers):
            if not isinstance(layer, Module):
                raise ArgumentError(f"[Sequential] layer {index} must be a Module, got {layer!r}")
            setattr(self, str(index), layer)

    def forward(self, x: Any) -> Any:
        for layer in self:
            x = layer(x)
        return x

    def __iter__(self) -> Iterator[Module]:
        return self.children()

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __getitem__(self, index: int) -> Module:
        return list(self)[index]
