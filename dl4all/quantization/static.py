"""Networks whose inputs become uint8 by steps that are found beforehand: prepare, calibrate, convert.

``prepare`` puts an observer before each linear layer and convolution, ``convert`` gives these layers weights
of int8 that compute with integers. ``prepare_qat`` has the layers train with what they will be (B. Jacob et
al., arXiv:1712.05877, section 3).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from dl4all.errors import ArgumentError
from dl4all.nn import functional
from dl4all.nn.module import Module
from dl4all.nn.modules.attention import MultiheadAttention
from dl4all.nn.modules.conv import Conv1d, Conv2d, Conv3d
from dl4all.nn.modules.linear import Identity, Linear
from dl4all.nn.modules.normalization import BatchNorm
from dl4all.nn.modules.rnn import GRU, LSTM, RNN, GRUCell, LSTMCell, RNNCell
from dl4all.nn.parameter import Parameter
from dl4all.nn.utils.fusion import fuse_conv_bn_eval, fuse_linear_bn_eval
from dl4all.nn.utils.parametrize import register_parametrization, remove_parametrizations
from dl4all.ops.conv.convolution import ConvArgs, conv_input
from dl4all.ops.conv.integer_convolution import integer_convolution
from dl4all.ops.core.kernels.kernel_function import kernel_function
from dl4all.ops.core.tensor_base import Size
from dl4all.ops.linalg.integer_product import integer_product
from dl4all.ops.memory.conversion import cast
from dl4all.quantization.observers import (
    LEVELS,
    HistogramObserver,
    MovingAverageMinMaxObserver,
    ObserverBase,
)
from dl4all.quantization.quantize import Filter, Int8DynamicActivationInt8WeightConfig, quantize_
from dl4all.quantization.weights import SMALLEST, STEPS, Backward, Int8Weight, finite_numbers
from dl4all.tensor.creation import from_numpy, tensor
from dl4all.tensor.tensor import Tensor

M = TypeVar("M", bound=Module)
LAYERS = (Linear, Conv1d, Conv2d, Conv3d)
DYNAMIC: tuple[type[Module], ...] = (Linear, LSTM, GRU, RNN, LSTMCell, GRUCell, RNNCell)
"""The classes of layers that :func:`quantize_dynamic` knows."""

OBSERVER = "input_observer"


class QConfig(NamedTuple):
    """The observation of layers' inputs; weights have a scale for each output.

    Args:
        activation: returns a new observer for a layer.

    Example:
        >>> import functools, dl4all as dl
        >>> observer = functools.partial(dl.quantization.PercentileObserver, 99.9)
        >>> net = dl.quantization.prepare(dl.nn.Linear(4, 2), qconfig=dl.quantization.QConfig(observer))
        >>> net.input_observer.percentile
        99.9
    """

    activation: Callable[[], ObserverBase] = HistogramObserver


class Int8StaticWeight(Int8Weight):
    """A weight of int8 for inputs of uint8, by steps that were found beforehand.

    ``input_scale`` and ``input_zero_point`` say what an input's steps are; ``correction`` has the zero point
    times the sum of an output's integers. A convolution's ``qdata`` is (out_channels, ..., in_channels).

    Example:
        >>> import dl4all as dl
        >>> weight = dl.tensor([[1.0, -1.0]], device="cpu")
        >>> held = dl.quantization.Int8StaticWeight.calibrated(weight, scale=0.5, zero_point=10)
        >>> round(dl.nn.functional.linear(dl.tensor([[3.1, 1.0]], device="cpu"), held).item(), 3)
        2.0
    """

    ops = ("linear", "conv1d", "conv2d", "conv3d")

    input_scale: Tensor
    input_zero_point: Tensor
    correction: Tensor

    @classmethod
    def calibrated(cls, weight: Tensor, scale: float, zero_point: int) -> Int8StaticWeight:
        """The nearest such weight of floats (out_features, ...).

        Raises:
            ArgumentError: one is infinite or nan.
        """
        numbers = finite_numbers(weight)
        if numbers.ndim > 2:
            numbers = np.ascontiguousarray(np.moveaxis(numbers, 1, -1))
        made = cls(*cls.steps(numbers, weight.device))
        integers = made.qdata.numpy().astype(np.int32)
        sums = integers.reshape(len(integers), -1).sum(1, dtype=np.int32)
        made.register_buffer("correction", from_numpy(sums * np.int32(zero_point), weight.device))
        made.register_buffer("input_scale", tensor(np.float32(scale), device=weight.device))
        made.register_buffer("input_zero_point", tensor(np.int32(zero_point), device=weight.device))
        return made

    @property
    def shape(self) -> Size:
        """(out_features, in_features), or (out_channels, in_channels, ...)."""
        first, *middle, last = self.qdata.shape
        return Size((first, last, *middle))

    def dequantized(self) -> Tensor:
        weight = super().dequantized()
        return weight if weight.ndim == 2 else weight.movedim(-1, 1)

    @kernel_function("static_int8_product")
    def product(self, input: Tensor, **arguments: Any) -> Tensor:
        if len(self.shape) == 2:
            rows = self._steps(input.reshape(math.prod(input.shape[:-1]), input.shape[-1]))
            sums = integer_product(rows, self.qdata)
            return self._numbers(sums).reshape(*input.shape[:-1], self.shape[0])
        args = ConvArgs(**arguments)
        if args.groups != 1:
            raise ArgumentError("[convolution] an Int8StaticWeight has one group; keep the layer in floats")
        window = args.window(self.shape[2:])
        ends = zip(window.before[::-1], window.behind[::-1], strict=True)
        padded = functional.pad(input, [number for pair in ends for number in pair])
        steps = self._steps(padded.movedim(1, -1).contiguous())
        sums = integer_convolution(steps, self.qdata, window.stride, window.dilation)
        return self._numbers(sums).movedim(-1, 1).contiguous()

    def _steps(self, input: Tensor) -> Any:
        """The input in steps of uint8."""
        return (
            ((input.float() / self.input_scale).round() + self.input_zero_point).clamp(0, LEVELS).to("uint8")
        )

    def _numbers(self, sums: Any) -> Tensor:
        """The numbers that sums of integers stand for; outputs lie along the last axis."""
        numbers: Tensor = (sums - self.correction).float() * (self.scale * self.input_scale)
        return numbers

    def _backward(self, input: Tensor, arguments: dict[str, Any]) -> Backward:
        if len(self.shape) == 2:
            return super()._backward(input, arguments)
        size = input.shape[2:]

        def backward(grads: Any, saved: Any, needs: Any) -> list[Any]:
            weight = cast(self.dequantized(), grads[0].dtype.name)
            return [conv_input(grads[0], weight, size, *ConvArgs(**arguments))]

        return backward


class FakeQuantize(Module):
    """Numbers as they are held in 8 bits, for training: rounded and clipped, with the gradient of clipping.

    Args:
        observer: of the range, which is looked at in training only.

    Example:
        >>> import dl4all as dl
        >>> fake = dl.quantization.FakeQuantize()
        >>> x = dl.tensor([-1.0, 0.013, 1.55], device="cpu")
        >>> [round(number, 3) for number in fake(x).tolist()]
        [-1.0, 0.01, 1.55]
    """

    def __init__(self, observer: ObserverBase | None = None) -> None:
        super().__init__()
        self.observer = MovingAverageMinMaxObserver() if observer is None else observer

    def forward(self, input: Tensor) -> Tensor:
        if self.training:
            self.observer(input)
        scale, zero_point = self.observer.calculate_qparams()
        return rounded(input, scale, -zero_point, LEVELS - zero_point)

    def calculate_qparams(self) -> tuple[float, int]:
        """The scale and the zero point."""
        return self.observer.calculate_qparams()


class _FakeQuantizedWeight(Module):
    """A weight as Int8Weight will hold it."""

    def forward(self, weight: Tensor) -> Tensor:
        axes = tuple(range(1, weight.ndim))
        scale = (weight.detach().abs().amax(axes, keepdim=True) / STEPS).clamp(min=SMALLEST)
        return rounded(weight, scale, -STEPS, STEPS)


def rounded(input: Tensor, scale: Tensor | float, low: int, high: int) -> Tensor:
    """The input in whole steps of a scale, from `low` to `high`; the gradient is that of clipping."""
    clipped = input.clamp(low * scale, high * scale) if isinstance(scale, float) else input
    steps = (input.detach() / scale).round().clamp(low, high)
    result: Tensor = clipped + (steps * scale - clipped.detach())
    return result


def get_default_qconfig(backend: str = "x86") -> QConfig:
    """The usual :class:`QConfig` of :func:`prepare`; the name of PyTorch's backend changes nothing.

    Example:
        >>> import dl4all as dl
        >>> dl.quantization.get_default_qconfig("fbgemm").activation.__name__
        'HistogramObserver'
    """
    return QConfig()


def get_default_qat_qconfig(backend: str = "x86") -> QConfig:
    """The usual :class:`QConfig` of :func:`prepare_qat`; the name of PyTorch's backend changes nothing.

    Example:
        >>> import dl4all as dl
        >>> dl.quantization.get_default_qat_qconfig("fbgemm").activation.__name__
        'MovingAverageMinMaxObserver'
    """
    return QConfig(MovingAverageMinMaxObserver)


class QuantStub(Identity):
    """The place where PyTorch's networks become quantised: layers do so by themselves here.

    Example:
        >>> import dl4all as dl
        >>> dl.quantization.QuantStub()(dl.ones(2)).tolist()
        [1.0, 1.0]
    """


class DeQuantStub(Identity):
    """The place where PyTorch's networks become floats again: results of layers are floats here.

    Example:
        >>> import dl4all as dl
        >>> dl.quantization.DeQuantStub()(dl.ones(2)).tolist()
        [1.0, 1.0]
    """


def prepare(
    model: M, inplace: bool = False, *, qconfig: QConfig | None = None, filter_fn: Filter | None = None
) -> M:
    """Put an observer before each linear layer and convolution; then call the network with typical inputs.

    Convolutions of several groups, or with a padding other than zeros, stay as they are, as do attention's
    projections.

    Args:
        model: the network, or a single layer.
        inplace: change the network itself, not a copy.
        qconfig: how inputs are observed; by default as ``model.qconfig`` says if there is one, or else with
            :class:`HistogramObserver`.
        filter_fn: ``filter_fn(module, name)`` says whether a layer is taken; by default all are.

    Raises:
        ArgumentError: there is no such layer, or the network is prepared already.

    Example:
        >>> import dl4all as dl
        >>> net = dl.nn.Sequential(dl.nn.Linear(8, 16), dl.nn.ReLU(), dl.nn.Linear(16, 2)).eval()
        >>> prepared = dl.quantization.prepare(net)
        >>> for _ in range(4):
        ...     _ = prepared(dl.randn(32, 8))
        >>> small = dl.quantization.convert(prepared)
        >>> small[0].weight
        Int8StaticWeight(16, 8)
    """
    model = model if inplace else copy.deepcopy(model)
    config = qconfig or getattr(model, "qconfig", None) or get_default_qconfig()
    for layer in _chosen(model, filter_fn, "prepare"):
        setattr(layer, OBSERVER, config.activation())
        layer.register_forward_pre_hook(_observe)
    return model


def prepare_qat(
    model: M, *, inplace: bool = False, qconfig: QConfig | None = None, filter_fn: Filter | None = None
) -> M:
    """Have layers compute with weights and inputs in 8 bits, and their gradients pass; then train.

    Args:
        model, inplace, filter_fn: as for :func:`prepare`.
        qconfig: the same, but by default with :class:`MovingAverageMinMaxObserver`.

    Raises:
        ArgumentError

    Example:
        >>> import dl4all as dl
        >>> net = dl.quantization.prepare_qat(dl.nn.Linear(8, 2))
        >>> net(dl.randn(4, 8)).sum().backward()
        >>> dl.quantization.convert(net).weight
        Int8StaticWeight(2, 8)
    """
    model = model if inplace else copy.deepcopy(model)
    config = qconfig or getattr(model, "qconfig", None) or get_default_qat_qconfig()
    for layer in _chosen(model, filter_fn, "prepare_qat"):
        setattr(layer, OBSERVER, FakeQuantize(config.activation()).train(layer.training))
        register_parametrization(layer, "weight", _FakeQuantizedWeight())
        layer.register_forward_pre_hook(_observe)
    return model


def convert(model: M, *, inplace: bool = False) -> M:
    """Give the layers of a prepared network weights of int8 that compute with inputs of uint8.

    Args:
        model: what :func:`prepare` or :func:`prepare_qat` returned, after calls with typical inputs.
        inplace: change the network itself, not a copy.

    Raises:
        ArgumentError: the network is not prepared, or a layer has seen no input; its name is told.

    Example:
        >>> import dl4all as dl
        >>> net = dl.quantization.prepare(dl.nn.Conv2d(3, 4, 3))
        >>> x = dl.randn(8, 3, 9, 9)
        >>> _ = net(x)
        >>> dl.quantization.convert(net)(x).shape
        (8, 4, 7, 7)
    """
    model = model if inplace else copy.deepcopy(model)
    found = [(name, m) for name, m in model.named_modules() if isinstance(vars(m).get(OBSERVER), Module)]
    if not found:
        raise ArgumentError("[convert] no layer has an observer; call prepare or prepare_qat first")
    made = []
    for name, layer in found:
        try:
            scale, zero_point = getattr(layer, OBSERVER).calculate_qparams()
            made.append(Int8StaticWeight.calibrated(_float_weight(layer), scale, zero_point))
        except ArgumentError as error:
            raise ArgumentError(f"{error} ({name or 'the layer'})") from None
    for (_, layer), weight in zip(found, made, strict=True):
        if isinstance(getattr(layer, OBSERVER), FakeQuantize):
            remove_parametrizations(layer, "weight", leave_parametrized=False)
        for key, hook in list(layer._call_hooks.items()):
            if hook.function is _observe:
                del layer._call_hooks[key]
        delattr(layer, OBSERVER)
        layer.weight = weight.train(layer.training)
    return model


def quantize_dynamic(
    model: M,
    qconfig_spec: Iterable[type[Module]] | None = None,
    dtype: Any = "int8",
    *,
    inplace: bool = False,
) -> M:
    """A network whose linear and recurrent layers have weights of int8, and multiply their inputs, as they
    come, by integers, with steps of each input's rows.

    Hidden states of recurrent layers are multiplied by the weights' numbers in floats.

    Args:
        model: the network.
        qconfig_spec: classes of layers; by default, and at most, :data:`DYNAMIC`: ``nn.Linear``, ``nn.LSTM``,
            ``nn.GRU``, ``nn.RNN`` and their cells.
        dtype: of the weights: int8.
        inplace: change the network itself, not a copy.

    Raises:
        ArgumentError: another class or dtype, or there is no such layer.

    Example:
        >>> import dl4all as dl
        >>> net = dl.nn.Sequential(dl.nn.Linear(8, 16), dl.nn.ReLU(), dl.nn.Linear(16, 2))
        >>> dl.quantization.quantize_dynamic(net, {dl.nn.Linear})[0].weight
        Int8DynamicWeight(16, 8)
    """
    kinds = set(DYNAMIC if qconfig_spec is None else qconfig_spec)
    if not kinds <= set(DYNAMIC) or np.dtype(dtype) != np.int8:
        names, known = (", ".join(sorted(kind.__name__ for kind in ones)) for ones in (kinds, DYNAMIC))
        raise ArgumentError(
            f"[quantize_dynamic] quantises {known} to int8, got {names} to {dtype}; leave other layers out"
        )
    model = model if inplace else copy.deepcopy(model)
    config = Int8DynamicActivationInt8WeightConfig()
    quantize_(model, config, lambda layer, name: isinstance(layer, tuple(kinds)))
    return model


def fuse_modules(
    model: M, modules_to_fuse: Sequence[str] | Sequence[Sequence[str]], inplace: bool = False
) -> M:
    """Fold batch normalizations into the convolutions or linear layers before them, for inference.

    Args:
        model: a network in evaluation mode.
        modules_to_fuse: names of a layer and of its normalization, or a list of such lists. A name of an
            activation behind them may follow, and changes nothing: results of layers are floats.
        inplace: change the network itself, not a copy.

    Raises:
        ArgumentError: there is no such module, it is none that can be folded, or it is training.

    Example:
        >>> import dl4all as dl
        >>> net = dl.nn.Sequential(dl.nn.Conv2d(3, 4, 3), dl.nn.BatchNorm2d(4), dl.nn.ReLU()).eval()
        >>> dl.quantization.fuse_modules(net, [["0", "1", "2"]])[1]
        Identity()
    """
    model = model if inplace else copy.deepcopy(model)
    single = bool(modules_to_fuse) and isinstance(modules_to_fuse[0], str)
    lists: Any = [modules_to_fuse] if single else modules_to_fuse
    for names in lists:
        first, second = (model.get_submodule(name) for name in names[:2])
        fuse: Any = fuse_linear_bn_eval if isinstance(first, Linear) else fuse_conv_bn_eval
        if not isinstance(first, LAYERS) or not isinstance(second, BatchNorm) or first.training:
            raise ArgumentError(
                f"[fuse_modules] expected a linear layer or a convolution and its batch normalization, in "
                f"evaluation mode, got {type(first).__name__} and {type(second).__name__}"
            )
        model.set_submodule(names[0], fuse(first, second))
        model.set_submodule(names[1], Identity())
    return model


def _chosen(model: Module, filter_fn: Filter | None, op: str) -> list[Module]:
    """The layers that are prepared.

    Raises:
        ArgumentError
    """
    chosen: list[Module] = []
    inside = tuple(
        f"{name}." for name, module in model.named_modules() if isinstance(module, MultiheadAttention)
    )
    for name, layer in model.named_modules():
        if vars(layer).get(OBSERVER) is not None:
            raise ArgumentError(f"[{op}] the network is prepared already ({name or 'the layer'})")
        if (
            isinstance(layer, LAYERS)
            and isinstance(vars(layer).get("weight"), Parameter)
            and not name.startswith(inside)
            and getattr(layer, "groups", 1) == 1
            and getattr(layer, "padding_mode", "zeros") == "zeros"
            and (filter_fn is None or filter_fn(layer, name))
        ):
            chosen.append(layer)
    if not chosen:
        raise ArgumentError(f"[{op}] no linear layer or convolution with a weight of floats was found")
    return chosen


def _observe(layer: Any, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """The inputs of a layer, of which the first has passed its observer."""
    return getattr(layer, OBSERVER)(inputs[0]), *inputs[1:]


def _float_weight(layer: Any) -> Tensor:
    """The weight of a layer as it is trained, without what a parametrization makes of it."""
    weight: Tensor = (
        layer.parametrizations.weight.original
        if isinstance(getattr(layer, OBSERVER), FakeQuantize)
        else layer.weight
    )
    return weight.detach()
