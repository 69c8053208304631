"""The differences of a quantised network from the one that it was made of, layer by layer."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from dl4all.autograd import no_grad
from dl4all.errors import ArgumentError
from dl4all.nn.module import Module
from dl4all.quantization.weights import QuantizedWeight


class LayerReport(NamedTuple):
    """A layer with weights in few bits.

    ``signal_to_noise`` is 10 log10 of the squares of its results in floats over those of the differences, in
    dB; the layers before it are quantised, too. inf for equal results, nan where none was given.

    Example:
        >>> import dl4all as dl
        >>> dl.quantization.LayerReport("fc", "Int8Weight", 400, 110, 41.5).bytes_after
        110
    """

    name: str
    kind: str
    bytes_before: int
    bytes_after: int
    signal_to_noise: float


def layer_reports(model: Module, quantized: Module, *inputs: Any) -> list[LayerReport]:
    """The layers of a network that are quantised, in the order of their names.

    Args:
        model: the network in floats.
        quantized: the same one after :func:`quantize_` or :func:`convert`.
        inputs: of a call of both.

    Raises:
        ArgumentError: the networks differ in other things than weights.

    Example:
        >>> import copy, dl4all as dl
        >>> net = dl.nn.Sequential(dl.nn.Linear(32, 32), dl.nn.ReLU(), dl.nn.Linear(32, 4))
        >>> small = copy.deepcopy(net)
        >>> dl.quantization.quantize_(small, dl.quantization.Int8WeightOnlyConfig())
        >>> [layer.name for layer in dl.quantization.layer_reports(net, small, dl.randn(16, 32))]
        ['0', '2']
    """
    layers = {name: layer for name, layer in quantized.named_modules() if _weights(layer)}
    before = dict(model.named_modules())
    missing = sorted(set(layers) - set(before))
    if missing:
        raise ArgumentError(f"[layer_reports] the network in floats has no layer {missing[0]!r}")
    found = [_results(network, list(layers), inputs) for network in (model, quantized)]
    reports = []
    for name, layer in layers.items():
        signal, other = (results.get(name) for results in found)
        ratio = math.nan if signal is None or other is None else _signal_to_noise(signal, other)
        kinds = sorted({type(weight).__name__ for weight in _weights(layer)})
        reports.append(
            LayerReport(name, ", ".join(kinds), state_bytes(before[name]), state_bytes(layer), ratio)
        )
    return reports


def _weights(layer: Module) -> list[QuantizedWeight]:
    return [child for child in layer.children() if isinstance(child, QuantizedWeight)]


def state_bytes(layer: Module) -> int:
    """The bytes of all parameters and buffers that are part of the state."""
    return sum(tensor.numel() * tensor.dtype.itemsize for tensor in layer.state_dict().values())


def _results(network: Module, names: list[str], inputs: tuple[Any, ...]) -> dict[str, Any]:
    """The first results of layers in a call."""
    results: dict[str, Any] = {}
    modules = dict(network.named_modules())

    def keep(name: str) -> Any:
        def hook(module: Module, given: Any, result: Any) -> None:
            first = result[0] if isinstance(result, tuple) else result
            results.setdefault(name, first.detach().cpu().numpy().astype(np.float64))

        return modules[name].register_forward_hook(hook)

    handles = [keep(name) for name in names]
    try:
        with no_grad():
            network(*inputs)
    finally:
        for handle in handles:
            handle.remove()
    return results


def _signal_to_noise(signal: Any, other: Any) -> float:
    noise = float(((signal - other) ** 2).sum())
    return math.inf if not noise else 10 * math.log10(max(float((signal**2).sum()), 1e-300) / noise)
