"""The weights of a network in fewer bits, by one call."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dl4all.errors import ArgumentError
from dl4all.nn.module import Module
from dl4all.nn.modules.attention import MultiheadAttention
from dl4all.nn.modules.linear import Linear
from dl4all.nn.modules.rnn import RNNBase, RNNCellBase
from dl4all.nn.parameter import Parameter
from dl4all.quantization.packed_weights import Int4Weight
from dl4all.quantization.weights import Int8DynamicWeight, Int8Weight, QuantizedWeight
from dl4all.tensor.tensor import Tensor

WEIGHTS: dict[type[Module], str] = {
    Linear: "weight",
    MultiheadAttention: r"(in|q|k|v)_proj_weight",
    RNNBase: r"weight_(ih|hh|hr)_l\d+(_reverse)?",
    RNNCellBase: r"weight_(ih|hh)",
}
"""By class of layer, the names of the weights that it multiplies by, as regular expressions."""

USUAL = (Linear, MultiheadAttention)
"""The layers that are taken where none are named."""


class WeightConfig:
    """A way to hold weights, for :func:`quantize_`; one's own defines ``quantized``.

    Example:
        >>> import dl4all as dl
        >>> config = dl.quantization.Int8WeightOnlyConfig()
        >>> isinstance(config, dl.quantization.WeightConfig), config.quantized(dl.ones(2, 3))
        (True, Int8Weight(2, 3))
    """

    def quantized(self, weight: Tensor) -> QuantizedWeight:
        """The weight held in this way.

        Raises:
            ArgumentError
        """
        raise NotImplementedError


@dataclass(frozen=True)
class Int8WeightOnlyConfig(WeightConfig):
    """Weights as int8 with a float32 scale for each output; inputs and results stay as they are.

    Example:
        >>> import dl4all as dl
        >>> dl.quantization.Int8WeightOnlyConfig()
        Int8WeightOnlyConfig()
    """

    def quantized(self, weight: Tensor) -> QuantizedWeight:
        return Int8Weight.of(weight)


@dataclass(frozen=True)
class Int4WeightOnlyConfig(WeightConfig):
    """Weights of 4 bits with a float16 scale for each group; inputs and results stay as they are.

    Args:
        group_size: weights of an output that share a scale, a multiple of 32. More make the file smaller,
            0.14 of float32's bytes with 32, 0.13 with 128, and the weights less exact.

    Example:
        >>> import dl4all as dl
        >>> dl.quantization.Int4WeightOnlyConfig(group_size=64)
        Int4WeightOnlyConfig(group_size=64)
    """

    group_size: int = 32

    def quantized(self, weight: Tensor) -> QuantizedWeight:
        return Int4Weight.of(weight, self.group_size)


@dataclass(frozen=True)
class Int8DynamicActivationInt8WeightConfig(WeightConfig):
    """Weights as int8, and inputs too when they come: products are of integers, with exact sums.

    Example:
        >>> import dl4all as dl
        >>> dl.quantization.Int8DynamicActivationInt8WeightConfig()
        Int8DynamicActivationInt8WeightConfig()
    """

    def quantized(self, weight: Tensor) -> QuantizedWeight:
        return Int8DynamicWeight.of(weight)


Filter = Callable[[Module, str], bool]


def quantize_(
    model: Module, config: WeightConfig, filter_fn: Filter | None = None, device: Any = None
) -> None:
    """Hold the weights of a network's linear layers and attention's projections in fewer bits, in place.

    The layers stay what they are; their weights become modules (:class:`QuantizedWeight`), with the buffers
    ``weight.qdata`` and ``weight.scale`` in the ``state_dict``.

    Args:
        model: the network, or a single layer.
        config: what becomes of the weights.
        filter_fn: ``filter_fn(module, name)`` says whether the weights of a linear layer, an attention or a
            recurrent layer or cell are changed; by default those of the first two are.
        device: moves the network first, if it is given.

    Raises:
        ArgumentError: the config is unknown, no layer has such a weight, or one cannot be held so; its name
            is told, and nothing has been changed.

    Example:
        >>> import dl4all as dl
        >>> net = dl.nn.Sequential(dl.nn.Linear(64, 64), dl.nn.ReLU(), dl.nn.Linear(64, 8))
        >>> dl.quantization.quantize_(net, dl.quantization.Int8WeightOnlyConfig())
        >>> net[2].weight
        Int8Weight(8, 64)
    """
    if not isinstance(config, WeightConfig):
        raise ArgumentError(
            f"[quantize_] expected a config such as Int8WeightOnlyConfig() or Int4WeightOnlyConfig(), got "
            f"{config!r}"
        )
    if device is not None:
        model.to(device)
    places: list[tuple[Module, str, int]] = []
    weights: dict[int, QuantizedWeight] = {}  # by parameter: layers may share one
    kinds = tuple(WEIGHTS)
    for path, layer in model.named_modules():
        if not isinstance(layer, kinds if filter_fn else USUAL) or (filter_fn and not filter_fn(layer, path)):
            continue
        wanted = next(names for kind, names in WEIGHTS.items() if isinstance(layer, kind))
        for name, parameter in list(vars(layer).items()):
            if not isinstance(parameter, Parameter) or not re.fullmatch(wanted, name):
                continue
            places.append((layer, name, id(parameter)))
            if id(parameter) not in weights:
                weights[id(parameter)] = _quantized(config, parameter, f"{path}.{name}".lstrip("."))
    if not places:
        raise ArgumentError(
            "[quantize_] no linear layer or attention with a weight of floats was found; give the network "
            "that has them, or a filter that takes some"
        )
    for layer, name, parameter_id in places:
        setattr(layer, name, weights[parameter_id].train(layer.training))


def _quantized(config: WeightConfig, parameter: Parameter, name: str) -> QuantizedWeight:
    try:
        return config.quantized(parameter.detach())
    except ArgumentError as error:
        raise ArgumentError(f"{error} ({name})") from None
