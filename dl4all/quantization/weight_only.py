"""Weight-only quantisation: layers hold int8, and compute in float32.

Each output has a scale of its own, so that the largest of its weights is 127 steps of it; the product with
the integers is multiplied by it (Jacob et al., arXiv:1712.05877, section 2.1, without zero points).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dl4all.errors import ArgumentError, DTypeError
from dl4all.nn.module import Module
from dl4all.nn.modules.attention import MultiheadAttention
from dl4all.nn.modules.linear import Linear
from dl4all.ops.core import tape
from dl4all.ops.linalg.int8_product import int8_product
from dl4all.ops.linalg.matrix_product import matmul
from dl4all.ops.memory.conversion import cast
from dl4all.tensor.creation import from_numpy
from dl4all.tensor.tensor import Tensor

STEPS = 127  # from 0 to the largest weight of an output


@dataclass(frozen=True)
class Int8WeightOnlyConfig:
    """Weights as int8 with a float32 scale for each output; inputs and results stay as they are.

    Example:
        >>> import dl4all as dl
        >>> dl.quantization.Int8WeightOnlyConfig()
        Int8WeightOnlyConfig()
    """


class QuantizedLinear(Module):
    """A :class:`dl4all.nn.Linear` whose weight is int8; :func:`quantize_` makes it of one.

    Gradients flow to the input, and the bias learns; the weight does not.

    Args:
        linear: the layer to take the weight of.

    Shape:
        (..., in_features) to (..., out_features); ``int8_weight`` is (out_features, in_features), ``scale``
        (out_features,).

    Raises:
        ArgumentError: a weight is infinite or nan, so that there is no scale.

    Example:
        >>> import dl4all as dl
        >>> layer = dl.nn.Linear(4, 3, device="cpu")
        >>> small = dl.quantization.QuantizedLinear(layer)
        >>> x = dl.ones(1, 4, device="cpu")
        >>> (small(x) - layer(x)).abs().max().item() < 0.02
        True
    """

    int8_weight: Tensor
    scale: Tensor

    def __init__(self, linear: Linear) -> None:
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        weight = linear.weight.detach().float().numpy()
        largest = np.abs(weight).max(axis=1, initial=0.0)
        if not np.isfinite(largest).all():
            raise ArgumentError(
                "[quantize_] a weight is infinite or nan, so that its output has no scale; look for it with "
                "isfinite()"
            )
        scale = np.where(largest > 0, largest / STEPS, 1.0).astype(np.float32)  # zeros stay zeros
        steps = np.clip(np.rint(weight / scale[:, None]), -STEPS, STEPS).astype(np.int8)
        device = linear.weight.device
        self.register_buffer("int8_weight", from_numpy(steps, device))
        self.register_buffer("scale", from_numpy(scale, device))
        self.bias = linear.bias

    @property
    def weight(self) -> Tensor:
        """Not there: what reads a layer's weight would take steps for numbers.

        Raises:
            DTypeError
        """
        raise DTypeError(
            "[QuantizedLinear] the weight is held as int8 steps of a scale; call the layer, or use "
            "layer.dequantized()"
        )

    def dequantized(self) -> Tensor:
        """The weight that the layer computes with, in float32."""
        weight: Tensor = self.int8_weight.float() * self.scale.reshape(-1, 1)
        return weight

    def forward(self, input: Tensor) -> Tensor:
        with tape.gradients(False):
            product: Any = int8_product(input, self.int8_weight)
            result: Any = cast(product * self.scale, input.dtype.name)

        def backward(grads: Any, saved: Any, needs: Any) -> list[Any]:
            return [matmul(grads[0], cast(self.dequantized(), grads[0].dtype.name))]

        tape.add_node("int8_linear", [input], [result], backward, [])
        output: Tensor = result if self.bias is None else result + cast(self.bias, result.dtype.name)
        return output

    def extra_repr(self) -> str:
        return f"{self.in_features}, {self.out_features}, bias={self.bias is not None}, int8"


Filter = Callable[[Module, str], bool]


def quantize_(
    model: Module, config: Int8WeightOnlyConfig, filter_fn: Filter | None = None, device: Any = None
) -> None:
    """Replace the linear layers of a network, in place, by layers that hold fewer bits.

    The output projection of :class:`dl4all.nn.MultiheadAttention` stays as it is, as in torchao: its weight
    is read without a call of the layer.

    Args:
        model: the network; a single ``Linear`` has no place for another layer.
        config: what becomes of the weights.
        filter_fn: ``filter_fn(module, name)`` says which of the linear layers are replaced; by default all.
        device: moves the network first, if it is given.

    Raises:
        ArgumentError: the config is unknown, the model is a linear layer itself, or a weight has no scale.
            Nothing is replaced then.

    Example:
        >>> import dl4all as dl
        >>> net = dl.nn.Sequential(dl.nn.Linear(64, 64), dl.nn.ReLU(), dl.nn.Linear(64, 8))
        >>> dl.quantization.quantize_(net, dl.quantization.Int8WeightOnlyConfig())
        >>> net[0]
        QuantizedLinear(64, 64, bias=True, int8)
    """
    if not isinstance(config, Int8WeightOnlyConfig):
        raise ArgumentError(f"[quantize_] expected Int8WeightOnlyConfig(), got {config!r}")
    if isinstance(model, Linear):
        raise ArgumentError("[quantize_] a Linear has no place for another layer; use QuantizedLinear(layer)")
    if device is not None:
        model.to(device)
    places: list[tuple[Module, str, Linear]] = []
    for path, layer in model.named_modules(remove_duplicate=False):
        if not isinstance(layer, Linear):
            continue
        of_parent, _, name = path.rpartition(".")
        parent = model.get_submodule(of_parent)
        if not isinstance(parent, MultiheadAttention) and (filter_fn is None or filter_fn(layer, path)):
            places.append((parent, name, layer))
    replacements = {layer: QuantizedLinear(layer).train(layer.training) for _, _, layer in places}
    for parent, name, layer in places:
        setattr(parent, name, replacements[layer])
