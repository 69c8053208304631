"""Linear and bilinear layers, and the identity."""

from __future__ import annotations

from typing import Any

from dl4all.errors import ArgumentError
from dl4all.nn import functional, init
from dl4all.nn.module import Module
from dl4all.nn.parameter import Parameter
from dl4all.ops.core.tensor_base import DTypeLike
from dl4all.tensor.arguments import DeviceLike
from dl4all.tensor.tensor import Tensor


class Linear(Module):
    """``x @ weight.T + bias`` over the last axis.

    Args:
        in_features: size of the input's last axis.
        out_features: size of the output's last axis.
        bias: whether there is a bias.
        device, dtype: of the parameters; by default the default device and float32.

    Shape:
        (..., in_features) to (..., out_features); ``weight`` is (out_features, in_features).

    Example:
        >>> import dl4all as dl
        >>> dl.nn.Linear(4, 3)(dl.rand(2, 5, 4)).shape
        (2, 5, 3)
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: DeviceLike | None = None,
        dtype: DTypeLike = None,
    ) -> None:
        super().__init__()
        if in_features < 0 or out_features < 1:
            raise ArgumentError(f"[Linear] cannot map {in_features} features to {out_features}")
        self.in_features, self.out_features = in_features, out_features
        self.weight = Parameter(init.kaiming_uniform((out_features, in_features)))
        self.bias = Parameter(init.fan_in_uniform((out_features,), in_features)) if bias else None
        self._place(device, dtype)

    def forward(self, input: Tensor) -> Tensor:
        return functional.linear(input, self.weight, self.bias)

    def extra_repr(self) -> str:
        return f"{self.in_features}, {self.out_features}, bias={self.bias is not None}"


class Bilinear(Module):
    """``x1 @ weight[i] @ x2 + bias[i]`` for each output i, over the last axes.

    Args:
        in1_features, in2_features: sizes of the inputs' last axes.
        out_features: size of the output's last axis.
        bias: whether there is a bias.
        device, dtype: of the parameters; by default the default device and float32.

    Shape:
        (..., in1_features) and (..., in2_features) to (..., out_features).

    Raises:
        ArgumentError: a size is not positive.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.Bilinear(2, 3, 4)(dl.ones(5, 2, device="cpu"), dl.ones(5, 3, device="cpu")).shape
        (5, 4)
    """

    def __init__(
        self,
        in1_features: int,
        in2_features: int,
        out_features: int,
        bias: bool = True,
        device: DeviceLike | None = None,
        dtype: DTypeLike = None,
    ) -> None:
        super().__init__()
        if min(in1_features, in2_features, out_features) < 1:
            raise ArgumentError(
                f"[Bilinear] cannot map {in1_features} and {in2_features} features to {out_features}"
            )
        self.in1_features, self.in2_features = in1_features, in2_features
        self.out_features = out_features
        shape = (out_features, in1_features, in2_features)
        self.weight = Parameter(init.fan_in_uniform(shape, in1_features))
        self.bias = Parameter(init.fan_in_uniform((out_features,), in1_features)) if bias else None
        self._place(device, dtype)

    def forward(self, input1: Tensor, input2: Tensor) -> Tensor:
        return functional.bilinear(input1, input2, self.weight, self.bias)

    def extra_repr(self) -> str:
        sizes = f"{self.in1_features}, {self.in2_features}, {self.out_features}"
        return f"{sizes}, bias={self.bias is not None}"


class Identity(Module):
    """Returns its input; replaces a layer that has been folded into another.

    Args:
        args, kwargs: anything; they are not used.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.Identity()(dl.tensor([1.0, 2.0])).tolist()
        [1.0, 2.0]
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def forward(self, input: Tensor) -> Tensor:
        return input
