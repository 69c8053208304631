"""Weights over their largest singular value under PyTorch's older names, such as ``weight_orig``."""

from __future__ import annotations

from typing import Any

from dl4all import ops
from dl4all.autograd import no_grad
from dl4all.errors import ArgumentError
from dl4all.nn import functional
from dl4all.nn.hooks import computing
from dl4all.nn.module import Module
from dl4all.nn.parameter import Parameter
from dl4all.nn.utils.parametrizations import outputs_of, rows_of
from dl4all.ops.core.removable_handle import RemovableHandle
from dl4all.tensor.random import randn
from dl4all.tensor.tensor import Tensor


class SpectralNorm:
    """Computes the weight before each call of its module."""

    def __init__(self, name: str, steps: int, dim: int, eps: float) -> None:
        self.name, self.steps, self.dim, self.eps = name, steps, dim, eps
        self.handle: RemovableHandle | None = None

    def compute_weight(self, module: Module, *, iterate: bool) -> Tensor:
        """The weight divided by its largest singular value, after some steps of the power iteration."""
        weight: Tensor = getattr(module, f"{self.name}_orig")
        u, v = getattr(module, f"{self.name}_u"), getattr(module, f"{self.name}_v")
        matrix = rows_of(weight, self.dim)
        if iterate:
            with no_grad():
                for _ in range(self.steps):
                    v.copy_(functional.normalize(ops.mv(matrix.T, u), dim=0, eps=self.eps))
                    u.copy_(functional.normalize(ops.mv(matrix, v), dim=0, eps=self.eps))
            u, v = u.clone(), v.clone()  # the next call changes them
        return weight / ops.dot(u, ops.mv(matrix, v))

    def __call__(self, module: Module, inputs: Any) -> None:
        setattr(module, self.name, self.compute_weight(module, iterate=module.training))


def spectral_norm(
    module: Module,
    name: str = "weight",
    n_power_iterations: int = 1,
    eps: float = 1e-12,
    dim: int | None = None,
) -> Module:
    """Divide a weight by its largest singular value: ``weight_orig`` is learned, ``weight_u`` a buffer.

    Miyato et al., arXiv:1802.05957. :func:`dl4all.nn.utils.parametrizations.spectral_norm` is PyTorch's
    newer form.

    Args:
        module: whose weight it is; ``module.weight`` is computed before each call.
        name: the weight's.
        n_power_iterations: steps of the power iteration before each call in training.
        eps: the smallest norm of the vectors.
        dim: the axis of outputs; by default 0, for transposed convolutions 1.

    Returns:
        The module.

    Raises:
        ArgumentError: the weight has a norm already, or there are no steps.

    Example:
        >>> import dl4all as dl
        >>> layer = dl.nn.utils.spectral_norm(dl.nn.Linear(3, 2))
        >>> list(layer.state_dict())
        ['bias', 'weight_orig', 'weight_u', 'weight_v']
    """
    if n_power_iterations < 1:
        raise ArgumentError(f"[spectral_norm] n_power_iterations must be positive, got {n_power_iterations}")
    if computing(module, SpectralNorm, name) is not None:
        raise ArgumentError(f"[spectral_norm] {name!r} of {type(module).__name__} has a norm already")
    norm = SpectralNorm(name, n_power_iterations, outputs_of(module) if dim is None else dim, eps)
    weight: Parameter = getattr(module, name)
    delattr(module, name)
    module.register_parameter(f"{name}_orig", weight)
    setattr(module, name, weight.detach())
    for which, size in zip("uv", rows_of(weight.detach(), norm.dim).shape, strict=True):
        drawn = randn(size, dtype=weight.dtype, device=weight.device)
        module.register_buffer(f"{name}_{which}", functional.normalize(drawn, dim=0, eps=eps))
    norm.handle = module.register_forward_pre_hook(norm)
    return module


def remove_spectral_norm(module: Module, name: str = "weight") -> Module:
    """Make a plain parameter of a weight that :func:`spectral_norm` divides; returns the module.

    Raises:
        ArgumentError: it has no norm.

    Example:
        >>> import dl4all as dl
        >>> layer = dl.nn.utils.spectral_norm(dl.nn.Linear(2, 3))
        >>> [name for name, _ in dl.nn.utils.remove_spectral_norm(layer).named_parameters()]
        ['bias', 'weight']
    """
    norm = computing(module, SpectralNorm, name)
    if norm is None or norm.handle is None:
        raise ArgumentError(f"[remove_spectral_norm] {name!r} of {type(module).__name__} has no norm")
    with no_grad():
        weight = norm.compute_weight(module, iterate=False)
    for part in (name, f"{name}_u", f"{name}_v", f"{name}_orig"):
        delattr(module, part)
    module.register_parameter(name, Parameter(weight.detach()))
    norm.handle.remove()
    return module
