"""Linear, and layers that only pass their input on."""

from __future__ import annotations

from dl4all.errors import ArgumentError
from dl4all.nn import functional, init
from dl4all.nn.module import Module, Parameter
from dl4all.tensor.tensor import Tensor


class Linear(Module):
    """``x @ weight.T + bias`` over the last axis.

    Args:
        in_features: size of the input's last axis.
        out_features: size of the output's.
        bias: whether there is a bias.

    Shape:
        (..., in_features) to (..., out_features); ``weight`` is (out_features, in_features).
    """

    def __init__(self, in_features: int, out_features: int, bias: bool = True) -> None:
        super().__init__()
        if in_features < 0 or out_features < 1:
            raise ArgumentError(f"[Linear] cannot map {in_features} features to {out_features}")
        self.in_features, self.out_features = in_features, out_features
        self.weight = Parameter(init.kaiming_uniform((out_features, in_features)))
        self.bias = Parameter(init.fan_in_uniform((out_features,), in_features)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        return functional.linear(x, self.weight, self.bias)

    def extra_repr(self) -> str:
        return f"{self.in_features}, {self.out_features}, bias={self.bias is not None}"


class Identity(Module):
    """The input itself: takes a layer's place where that has been folded into another."""

    def forward(self, x: Tensor) -> Tensor:
        return x


class Flatten(Module):
    """Axes `start_dim` to `end_dim` as one; by default all but the batch."""

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        super().__init__()
        self.start_dim, self.end_dim = start_dim, end_dim

    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(self.start_dim, self.end_dim)

    def extra_repr(self) -> str:
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"
