"""Parametrizations of weights: normalized by their norm or their largest singular value, or orthogonal."""

from __future__ import annotations

from typing import Any

import numpy as np

from dl4all import ops
from dl4all.autograd import no_grad
from dl4all.errors import ArgumentError, ShapeError
from dl4all.nn import functional
from dl4all.nn.module import Module
from dl4all.nn.modules.conv import ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from dl4all.nn.utils import parametrize
from dl4all.tensor.creation import from_numpy
from dl4all.tensor.random import randn
from dl4all.tensor.ranges import eye
from dl4all.tensor.tensor import Tensor


def norm_except_dim(v: Tensor, dim: int | None) -> Tensor:
    """The 2-norms along all axes but one, which stay with size 1; of all elements for None and -1.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.utils.parametrizations.norm_except_dim(dl.tensor([[3.0, 4.0]]), 0).tolist()
        [[5.0]]
    """
    if dim is None or dim == -1:
        return ops.norm(v)
    others = tuple(axis for axis in range(v.ndim) if axis != dim)
    return ops.norm(v, 2, others, True) if others else ops.abs(v)


class _WeightNorm(Module):
    """``g * v / norm(v)``, of two parameters."""

    def __init__(self, dim: int | None) -> None:
        super().__init__()
        self.dim = -1 if dim is None else dim

    def forward(self, weight_g: Tensor, weight_v: Tensor) -> Tensor:
        return weight_v * (weight_g / norm_except_dim(weight_v, self.dim))

    def right_inverse(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        return norm_except_dim(weight, self.dim), weight


def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Module:
    """Split a weight into its length and its direction, which are learned apart.

    Salimans and Kingma, arXiv:1602.07868. The parameters are ``parametrizations.weight.original0``, the
    lengths, and ``original1``; state dicts with ``weight_g`` and ``weight_v`` are loaded, too.

    Args:
        module: whose weight it is.
        name: the weight's.
        dim: the axis along which each index has a length of its own; None for one of the whole weight.

    Returns:
        The module.

    Example:
        >>> import dl4all as dl
        >>> layer = dl.nn.utils.parametrizations.weight_norm(dl.nn.Linear(3, 2))
        >>> {name: p.shape for name, p in layer.parametrizations.named_parameters()}
        {'weight.original0': (2, 1), 'weight.original1': (2, 3)}
    """
    parametrize.register_parametrization(module, name, _WeightNorm(dim), unsafe=True)

    def rename(state: Any, prefix: str, *others: Any) -> None:
        for old, new in ((f"{name}_g", "original0"), (f"{name}_v", "original1")):
            if prefix + old in state:
                state[f"{prefix}parametrizations.{name}.{new}"] = state.pop(prefix + old)

    module._register_load_state_dict_pre_hook(rename)
    return module


def rows_of(weight: Tensor, dim: int) -> Tensor:
    """A weight as a matrix with a row for each index along an axis.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.utils.parametrizations.rows_of(dl.ones(2, 3, 4), 1).shape
        (3, 8)
    """
    if dim:
        weight = weight.permute(dim, *(axis for axis in range(weight.ndim) if axis != dim))
    return weight.flatten(1)


class _SpectralNorm(Module):
    """A weight divided by its largest singular value, which power iteration finds."""

    def __init__(self, weight: Tensor, n_power_iterations: int, dim: int, eps: float) -> None:
        super().__init__()
        if n_power_iterations < 1:
            raise ArgumentError(
                f"[spectral_norm] n_power_iterations must be positive, got {n_power_iterations}"
            )
        self.dim = dim if dim >= 0 else dim + weight.ndim
        self.n_power_iterations, self.eps = n_power_iterations, eps
        if weight.ndim > 1:
            with no_grad():
                matrix = rows_of(weight.detach(), self.dim)
                u, v = (randn(size, dtype=weight.dtype, device=weight.device) for size in matrix.shape)
                self.register_buffer("_u", functional.normalize(u, dim=0, eps=eps))
                self.register_buffer("_v", functional.normalize(v, dim=0, eps=eps))
                self._iterate(matrix, 15)

    @no_grad()
    def _iterate(self, matrix: Tensor, times: int) -> None:
        u, v = self._buffers["_u"], self._buffers["_v"]
        for _ in range(times):
            u.copy_(functional.normalize(ops.mv(matrix, v), dim=0, eps=self.eps))
            v.copy_(functional.normalize(ops.mv(matrix.T, u), dim=0, eps=self.eps))

    def forward(self, weight: Tensor) -> Tensor:
        if weight.ndim == 1:
            return functional.normalize(weight, dim=0, eps=self.eps)
        matrix = rows_of(weight, self.dim)
        if self.training:
            self._iterate(matrix.detach(), self.n_power_iterations)
        u, v = self._buffers["_u"].clone(), self._buffers["_v"].clone()
        return weight / ops.dot(u, ops.mv(matrix, v))

    def right_inverse(self, value: Tensor) -> Tensor:
        return value


def spectral_norm(
    module: Module,
    name: str = "weight",
    n_power_iterations: int = 1,
    eps: float = 1e-12,
    dim: int | None = None,
) -> Module:
    """Divide a weight by its largest singular value.

    Miyato et al., arXiv:1802.05957. Each use in training goes a few steps of the power iteration on.

    Args:
        module: whose weight it is.
        name: the weight's.
        n_power_iterations: steps at each use.
        eps: the smallest norm of the vectors.
        dim: the axis of outputs; by default 0, for transposed convolutions 1.

    Returns:
        The module.

    Example:
        >>> import dl4all as dl
        >>> layer = dl.nn.utils.parametrizations.spectral_norm(dl.nn.Linear(5, 3))
        >>> [name for name, _ in layer.named_buffers()]
        ['parametrizations.weight.0._u', 'parametrizations.weight.0._v']
    """
    axis = outputs_of(module) if dim is None else dim
    made = _SpectralNorm(getattr(module, name), n_power_iterations, axis, eps)
    parametrize.register_parametrization(module, name, made)
    return module


def outputs_of(module: Module) -> int:
    """The axis of outputs in a module's weight.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.utils.parametrizations.outputs_of(dl.nn.ConvTranspose2d(2, 3, 1))
        1
    """
    return 1 if isinstance(module, (ConvTranspose1d, ConvTranspose2d, ConvTranspose3d)) else 0


class _Orthogonal(Module):
    """A matrix with orthogonal rows or columns, by one of two maps from all matrices."""

    def __init__(self, weight: Tensor, orthogonal_map: str, use_trivialization: bool) -> None:
        super().__init__()
        self.orthogonal_map = orthogonal_map
        self.trivial = use_trivialization
        if use_trivialization:
            self.register_buffer("base", None)

    def forward(self, X: Tensor) -> Tensor:
        transposed = X.shape[-2] < X.shape[-1]
        x = X.mT if transposed else X
        n, k = x.shape[-2:]
        base = self._buffers["base"] if self.trivial else None
        if self.orthogonal_map == "householder":
            a = x.tril(-1)
            signs = ops.diagonal(x, 0, -2, -1).detach().to("int64").to(x.dtype)
            q = _householder(a) * signs.unsqueeze(-2)
        else:
            a = x.tril()
            if n != k:
                a = functional.pad(a, (0, n - k))
            q = ops.matrix_exp(a - a.mT)[..., :k]
        if base is not None:
            q = base @ q
        return q.mT if transposed else q

    @no_grad()
    def right_inverse(self, Q: Tensor) -> Tensor:
        transposed = Q.shape[-2] < Q.shape[-1]
        q = Q.detach().numpy().astype(np.float64)
        q = np.swapaxes(q, -1, -2) if transposed else q
        n, k = q.shape[-2:]
        if not self.trivial:
            if self.orthogonal_map != "householder":
                raise NotImplementedError("[orthogonal] cannot assign a value: pass use_trivialization=True")
            made = _reflectors(q)
            result = np.swapaxes(made, -1, -2) if transposed else made
        else:
            if n != k:
                more = randn(*q.shape[:-1], n - k).numpy() if self.orthogonal_map != "householder" else None
                q = q if more is None else np.concatenate([q, more], -1)
            base = _orthogonalized(q, complete=self.orthogonal_map == "householder")
            self.register_buffer("base", from_numpy(base.astype(Q.dtype), Q.device))
            result = np.zeros(Q.shape)
            axis = np.arange(k)
            result[..., axis, axis] = -1.0  # its map is the identity
        return from_numpy(np.ascontiguousarray(result).astype(Q.dtype), Q.device)


def _orthogonalized(a: Any, complete: bool) -> Any:
    """The orthogonal factor of a matrix, with the signs of its columns; square with `complete`."""
    k = a.shape[-1]
    q, r = np.linalg.qr(a, mode="complete" if complete else "reduced")
    signs = np.where(np.diagonal(r, 0, -2, -1) < 0, -1.0, 1.0)
    q[..., :k] *= signs[..., None, :]
    return q


def _reflectors(a: Any) -> Any:
    """The vectors from which :func:`_householder` makes the orthogonal factor of a matrix."""
    flat = a.reshape(-1, *a.shape[-2:])
    made = np.empty_like(flat)
    for number, matrix in enumerate(flat):
        h, tau = np.linalg.qr(matrix, mode="raw")
        made[number] = h.T
        axis = np.arange(matrix.shape[1])
        diagonal = np.where(made[number][axis, axis] < 0, -1.0, 1.0)
        made[number][axis, axis] = np.where(tau == 0, -diagonal, diagonal)
    return made.reshape(a.shape)


def _householder(a: Tensor) -> Tensor:
    """The first columns of the product of the reflections by the columns of `a` with ones on the diagonal."""
    n, k = a.shape[-2:]
    identity = eye(n, k, dtype=a.dtype, device=a.device)
    vectors = a + identity
    tau = 2.0 / ops.sum(vectors * vectors, -2, True)  # (..., 1, k)
    q = identity.expand(*a.shape)
    for column in reversed(range(k)):
        v = vectors[..., column : column + 1]
        q = q - (tau[..., column : column + 1] * v) @ (v.mT @ q)
    return q


def orthogonal(
    module: Module,
    name: str = "weight",
    orthogonal_map: str | None = None,
    *,
    use_trivialization: bool = True,
) -> Module:
    """Keep the rows or columns of a weight, whichever are fewer, orthogonal and of length 1.

    Args:
        module: whose weight it is.
        name: the weight's; it has at least two axes, and the last two are those of the matrices.
        orthogonal_map: ``"matrix_exp"`` or ``"householder"``; by default the first for square matrices.
        use_trivialization: learn the difference to the present orthogonal matrix, which can then be set.

    Returns:
        The module.

    Raises:
        ShapeError: the weight has fewer than two axes.
        ArgumentError: there is no such map.

    Example:
        >>> import dl4all as dl
        >>> layer = dl.nn.utils.parametrizations.orthogonal(dl.nn.Linear(5, 3))
        >>> dl.allclose(layer.weight @ layer.weight.T, dl.eye(3), atol=1e-5)
        True
    """
    weight: Tensor = getattr(module, name)
    if weight.ndim < 2:
        raise ShapeError(f"[orthogonal] expected a matrix, or several, got shape {weight.shape}")
    if orthogonal_map is None:
        orthogonal_map = "matrix_exp" if weight.shape[-2] == weight.shape[-1] else "householder"
    if orthogonal_map not in ("matrix_exp", "householder"):
        raise ArgumentError(
            f"[orthogonal] orthogonal_map must be 'matrix_exp' or 'householder', got {orthogonal_map!r}"
        )
    made = _Orthogonal(weight, orthogonal_map, use_trivialization)
    parametrize.register_parametrization(module, name, made, unsafe=True)
    return module
