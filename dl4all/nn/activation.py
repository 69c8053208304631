"""Activation layers."""

from __future__ import annotations

from dl4all.nn import functional
from dl4all.nn.module import Module
from dl4all.tensor.tensor import Tensor


class ReLU(Module):
    """:func:`~dl4all.nn.functional.relu` as a layer; any shape in, the same out."""

    def forward(self, x: Tensor) -> Tensor:
        return functional.relu(x)  # type: ignore[no-any-return]


class Softmax(Module):
    """:func:`~dl4all.nn.functional.softmax` along axis `dim` as a layer."""

    def __init__(self, dim: int = -1) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, x: Tensor) -> Tensor:
        return functional.softmax(x, dim=self.dim)  # type: ignore[no-any-return]

    def extra_repr(self) -> str:
        return f"dim={self.dim}"
