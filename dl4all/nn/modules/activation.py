"""Activation layers."""

from __future__ import annotations

import warnings

from dl4all.errors import ShapeError
from dl4all.nn import functional
from dl4all.nn.function_layer import FunctionLayer
from dl4all.nn.module import Module
from dl4all.nn.parameter import Parameter
from dl4all.ops.core.tensor_base import DTypeLike
from dl4all.tensor.arguments import DeviceLike
from dl4all.tensor.creation import full
from dl4all.tensor.tensor import Tensor


class _PlainFunction(FunctionLayer):
    """A function whose only argument is `inplace`: whether it writes its result into its input."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__(inplace=inplace)


class ReLU(_PlainFunction):
    """:func:`~dl4all.nn.functional.relu` as a layer."""

    function = staticmethod(functional.relu)


class ReLU6(_PlainFunction):
    """:func:`~dl4all.nn.functional.relu6` as a layer.

    Example:
        >>> import dl4all as dl
        >>> [round(v, 4) for v in dl.nn.ReLU6()(dl.tensor([-2.0, 0.25, 3.0])).tolist()]
        [0.0, 0.25, 3.0]
    """

    function = staticmethod(functional.relu6)


class SELU(_PlainFunction):
    """:func:`~dl4all.nn.functional.selu` as a layer."""

    function = staticmethod(functional.selu)


class SiLU(_PlainFunction):
    """:func:`~dl4all.nn.functional.silu` as a layer.

    Example:
        >>> import dl4all as dl
        >>> [round(v, 4) for v in dl.nn.SiLU()(dl.tensor([-2.0, 0.25, 3.0])).tolist()]
        [-0.2384, 0.1405, 2.8577]
    """

    function = staticmethod(functional.silu)


class Mish(_PlainFunction):
    """:func:`~dl4all.nn.functional.mish` as a layer.

    Example:
        >>> import dl4all as dl
        >>> [round(v, 4) for v in dl.nn.Mish()(dl.tensor([-2.0, 0.25, 3.0])).tolist()]
        [-0.2525, 0.1696, 2.9865]
    """

    function = staticmethod(functional.mish)


class Hardswish(_PlainFunction):
    """:func:`~dl4all.nn.functional.hardswish` as a layer.

    Example:
        >>> import dl4all as dl
        >>> [round(v, 4) for v in dl.nn.Hardswish()(dl.tensor([-2.0, 0.25, 3.0])).tolist()]
        [-0.3333, 0.1354, 3.0]
    """

    function = staticmethod(functional.hardswish)


class Hardsigmoid(_PlainFunction):
    """:func:`~dl4all.nn.functional.hardsigmoid` as a layer.

    Example:
        >>> import dl4all as dl
        >>> [round(v, 4) for v in dl.nn.Hardsigmoid()(dl.tensor([-2.0, 0.25, 3.0])).tolist()]
        [0.1667, 0.5417, 1.0]
    """

    function = staticmethod(functional.hardsigmoid)


class Sigmoid(FunctionLayer):
    """:func:`~dl4all.nn.functional.sigmoid` as a layer."""

    function = staticmethod(functional.sigmoid)


class LogSigmoid(FunctionLayer):
    """:func:`~dl4all.nn.functional.logsigmoid` as a layer.

    Example:
        >>> import dl4all as dl
        >>> [round(v, 4) for v in dl.nn.LogSigmoid()(dl.tensor([-2.0, 0.25, 3.0])).tolist()]
        [-2.1269, -0.5759, -0.0486]
    """

    function = staticmethod(functional.logsigmoid)


class Tanh(FunctionLayer):
    """:func:`~dl4all.nn.functional.tanh` as a layer."""

    function = staticmethod(functional.tanh)


class Softsign(FunctionLayer):
    """:func:`~dl4all.nn.functional.softsign` as a layer.

    Example:
        >>> import dl4all as dl
        >>> [round(v, 4) for v in dl.nn.Softsign()(dl.tensor([-2.0, 0.25, 3.0])).tolist()]
        [-0.6667, 0.2, 0.75]
    """

    function = staticmethod(functional.softsign)


class LeakyReLU(FunctionLayer):
    """:func:`~dl4all.nn.functional.leaky_relu` as a layer.

    Example:
        >>> import dl4all as dl
        >>> [round(v, 4) for v in dl.nn.LeakyReLU(0.1)(dl.tensor([-2.0, 0.25, 3.0])).tolist()]
        [-0.2, 0.25, 3.0]
    """

    function = staticmethod(functional.leaky_relu)

    def __init__(self, negative_slope: float = 0.01, inplace: bool = False) -> None:
        super().__init__(negative_slope=negative_slope, inplace=inplace)


class ELU(FunctionLayer):
    """:func:`~dl4all.nn.functional.elu` as a layer.

    Example:
        >>> import dl4all as dl
        >>> [round(v, 4) for v in dl.nn.ELU()(dl.tensor([-2.0, 0.25, 3.0])).tolist()]
        [-0.8647, 0.25, 3.0]
    """

    function = staticmethod(functional.elu)

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__(alpha=alpha, inplace=inplace)


class CELU(FunctionLayer):
    """:func:`~dl4all.nn.functional.celu` as a layer."""

    function = staticmethod(functional.celu)

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__(alpha=alpha, inplace=inplace)


class GELU(FunctionLayer):
    """:func:`~dl4all.nn.functional.gelu` as a layer; `approximate` is "none" or "tanh".

    Example:
        >>> import dl4all as dl
        >>> [round(v, 4) for v in dl.nn.GELU()(dl.tensor([-2.0, 0.25, 3.0])).tolist()]
        [-0.0455, 0.1497, 2.996]
    """

    function = staticmethod(functional.gelu)

    def __init__(self, approximate: str = "none") -> None:
        super().__init__(approximate=approximate)


class Softplus(FunctionLayer):
    """:func:`~dl4all.nn.functional.softplus` as a layer.

    Example:
        >>> import dl4all as dl
        >>> [round(v, 4) for v in dl.nn.Softplus()(dl.tensor([-2.0, 0.25, 3.0])).tolist()]
        [0.1269, 0.8259, 3.0486]
    """

    function = staticmethod(functional.softplus)

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        super().__init__(beta=beta, threshold=threshold)


class Hardtanh(FunctionLayer):
    """:func:`~dl4all.nn.functional.hardtanh` as a layer.

    Example:
        >>> import dl4all as dl
        >>> [round(v, 4) for v in dl.nn.Hardtanh()(dl.tensor([-2.0, 0.25, 3.0])).tolist()]
        [-1.0, 0.25, 1.0]
    """

    function = staticmethod(functional.hardtanh)

    def __init__(
        self,
        min_val: float = -1.0,
        max_val: float = 1.0,
        inplace: bool = False,
        min_value: float | None = None,
        max_value: float | None = None,
    ) -> None:
        min_val = min_val if min_value is None else min_value
        max_val = max_val if max_value is None else max_value
        super().__init__(min_val=min_val, max_val=max_val, inplace=inplace)


class Threshold(FunctionLayer):
    """:func:`~dl4all.nn.functional.threshold` as a layer.

    Example:
        >>> import dl4all as dl
        >>> [round(v, 4) for v in dl.nn.Threshold(0.5, 9.0)(dl.tensor([-2.0, 0.25, 3.0])).tolist()]
        [9.0, 9.0, 3.0]
    """

    function = staticmethod(functional.threshold)

    def __init__(self, threshold: float, value: float, inplace: bool = False) -> None:
        super().__init__(threshold=threshold, value=value, inplace=inplace)


class GLU(FunctionLayer):
    """:func:`~dl4all.nn.functional.glu` as a layer: half the size along axis `dim`.

    Example:
        >>> import dl4all as dl
        >>> [round(v, 4) for v in dl.nn.GLU()(dl.tensor([1.0, 2.0, 0.0, 3.0])).tolist()]
        [0.5, 1.9051]
    """

    function = staticmethod(functional.glu)

    def __init__(self, dim: int = -1) -> None:
        super().__init__(dim=dim)


class _AlongAxis(FunctionLayer):
    """A function along axis `dim`; without one, along axis 0 or 1 as in PyTorch, with its warning."""

    dim: int | None

    def __init__(self, dim: int | None = None) -> None:
        super().__init__(dim=dim)

    def forward(self, input: Tensor) -> Tensor:
        dim = self.dim
        if dim is None:
            dim = 0 if input.ndim in (0, 1, 3) else 1
            warnings.warn(
                f"[{type(self).__name__}] takes axis {dim}, as none is given; pass dim", stacklevel=2
            )
        return type(self).function(input, dim)


class Softmax(_AlongAxis):
    """:func:`~dl4all.nn.functional.softmax` along axis `dim` as a layer."""

    function = staticmethod(functional.softmax)


class LogSoftmax(_AlongAxis):
    """:func:`~dl4all.nn.functional.log_softmax` along axis `dim` as a layer."""

    function = staticmethod(functional.log_softmax)


class Softmin(_AlongAxis):
    """:func:`~dl4all.nn.functional.softmin` along axis `dim` as a layer.

    Example:
        >>> import dl4all as dl
        >>> [round(v, 4) for v in dl.nn.Softmin(0)(dl.tensor([1.0, 2.0])).tolist()]
        [0.7311, 0.2689]
    """

    function = staticmethod(functional.softmin)


class Softmax2d(FunctionLayer):
    """:func:`~dl4all.nn.functional.softmax` across the channels of (N, C, H, W) or (C, H, W)."""

    def forward(self, input: Tensor) -> Tensor:
        if input.ndim not in (3, 4):
            raise ShapeError(f"[Softmax2d] expected shape (N, C, H, W) or (C, H, W), got {input.shape}")
        return functional.softmax(input, -3)


class Hardshrink(FunctionLayer):
    """:func:`~dl4all.nn.functional.hardshrink` as a layer.

    Example:
        >>> import dl4all as dl
        >>> [round(v, 4) for v in dl.nn.Hardshrink()(dl.tensor([-2.0, 0.25, 3.0])).tolist()]
        [-2.0, 0.0, 3.0]
    """

    function = staticmethod(functional.hardshrink)

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__(lambd=lambd)


class Softshrink(FunctionLayer):
    """:func:`~dl4all.nn.functional.softshrink` as a layer.

    Example:
        >>> import dl4all as dl
        >>> [round(v, 4) for v in dl.nn.Softshrink()(dl.tensor([-2.0, 0.25, 3.0])).tolist()]
        [-1.5, 0.0, 2.5]
    """

    function = staticmethod(functional.softshrink)

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__(lambd=lambd)


class Tanhshrink(FunctionLayer):
    """:func:`~dl4all.nn.functional.tanhshrink` as a layer.

    Example:
        >>> import dl4all as dl
        >>> [round(v, 4) for v in dl.nn.Tanhshrink()(dl.tensor([-2.0, 0.25, 3.0])).tolist()]
        [-1.036, 0.0051, 2.0049]
    """

    function = staticmethod(functional.tanhshrink)


class RReLU(FunctionLayer):
    """:func:`~dl4all.nn.functional.rrelu` as a layer, with random slopes in training.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.RReLU().eval()(dl.tensor([-3.0, 2.0]))[1].item()
        2.0
    """

    lower: float
    upper: float
    inplace: bool

    def __init__(self, lower: float = 1 / 8, upper: float = 1 / 3, inplace: bool = False) -> None:
        super().__init__(lower=lower, upper=upper, inplace=inplace)

    def forward(self, input: Tensor) -> Tensor:
        return functional.rrelu(input, self.lower, self.upper, self.training, self.inplace)


class PReLU(Module):
    """:func:`~dl4all.nn.functional.prelu` with the slopes as a parameter.

    Args:
        num_parameters: how many slopes: 1, or one for each channel (axis 1).
        init: the initial slopes.
        device, dtype: of the slopes; by default the default device and float32.
    """

    def __init__(
        self,
        num_parameters: int = 1,
        init: float = 0.25,
        device: DeviceLike | None = None,
        dtype: DTypeLike = None,
    ) -> None:
        super().__init__()
        self.num_parameters = num_parameters
        self.weight = Parameter(full((num_parameters,), init, device="cpu"))
        self._place(device, dtype)

    def forward(self, input: Tensor) -> Tensor:
        return functional.prelu(input, self.weight)

    def extra_repr(self) -> str:
        return f"num_parameters={self.num_parameters}"
