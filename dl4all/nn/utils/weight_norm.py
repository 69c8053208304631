"""Weights as lengths and directions under PyTorch's older names: ``weight_g`` and ``weight_v``."""

from __future__ import annotations

from typing import Any

from dl4all.errors import ArgumentError
from dl4all.nn.hooks import computing
from dl4all.nn.module import Module
from dl4all.nn.parameter import Parameter
from dl4all.nn.utils.parametrizations import norm_except_dim
from dl4all.ops.core.removable_handle import RemovableHandle
from dl4all.tensor.tensor import Tensor


class WeightNorm:
    """Computes the weight before each call of its module."""

    def __init__(self, name: str, dim: int | None) -> None:
        self.name, self.dim = name, -1 if dim is None else dim
        self.handle: RemovableHandle | None = None

    def compute_weight(self, module: Module) -> Tensor:
        """The lengths times the directions."""
        g, v = getattr(module, f"{self.name}_g"), getattr(module, f"{self.name}_v")
        result: Tensor = v * (g / norm_except_dim(v, self.dim))
        return result

    def __call__(self, module: Module, inputs: Any) -> None:
        setattr(module, self.name, self.compute_weight(module))


def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Module:
    """Split a weight into its length ``weight_g`` and its direction ``weight_v``, which are learned apart.

    Salimans and Kingma, arXiv:1602.07868. :func:`dl4all.nn.utils.parametrizations.weight_norm` is PyTorch's
    newer form.

    Args:
        module: whose weight it is; ``module.weight`` is computed before each call.
        name: the weight's.
        dim: the axis along which each index has a length of its own; None for one of the whole weight.

    Returns:
        The module.

    Raises:
        ArgumentError: the weight has been split before.

    Example:
        >>> import dl4all as dl
        >>> layer = dl.nn.utils.weight_norm(dl.nn.Linear(3, 2))
        >>> [name for name, _ in layer.named_parameters()]
        ['bias', 'weight_g', 'weight_v']
    """
    if computing(module, WeightNorm, name) is not None:
        raise ArgumentError(f"[weight_norm] {name!r} of {type(module).__name__} is split already")
    norm = WeightNorm(name, dim)
    weight = getattr(module, name)
    delattr(module, name)
    module.register_parameter(f"{name}_g", Parameter(norm_except_dim(weight.detach(), norm.dim)))
    module.register_parameter(f"{name}_v", Parameter(weight.detach()))
    setattr(module, name, norm.compute_weight(module))
    norm.handle = module.register_forward_pre_hook(norm)
    return module


def remove_weight_norm(module: Module, name: str = "weight") -> Module:
    """Make one parameter of a weight that :func:`weight_norm` has split; returns the module.

    Raises:
        ArgumentError: it has not been split.

    Example:
        >>> import dl4all as dl
        >>> layer = dl.nn.utils.weight_norm(dl.nn.Linear(2, 3))
        >>> [name for name, _ in dl.nn.utils.remove_weight_norm(layer).named_parameters()]
        ['bias', 'weight']
    """
    norm = computing(module, WeightNorm, name)
    if norm is None or norm.handle is None:
        raise ArgumentError(f"[remove_weight_norm] {name!r} of {type(module).__name__} is not split")
    weight = norm.compute_weight(module).detach()
    for part in (name, f"{name}_g", f"{name}_v"):
        delattr(module, part)
    module.register_parameter(name, Parameter(weight))
    norm.handle.remove()
    return module
