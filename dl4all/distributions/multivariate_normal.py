"""The normal distribution of vectors."""

from __future__ import annotations

from typing import Any, ClassVar

from dl4all import ops
from dl4all.distributions import constraints
from dl4all.distributions.distribution import NO_SHAPE, Distribution, lazy_property, standard_normal
from dl4all.distributions.normal import HALF_LOG_TAU
from dl4all.errors import ArgumentError
from dl4all.tensor.ranges import eye
from dl4all.tensor.tensor import Tensor


class MultivariateNormal(Distribution):
    """The normal distribution of vectors of n elements.

    Matrices are factored and inverted by :func:`dl4all.linalg.cholesky` and
    :func:`~dl4all.linalg.solve_triangular`, which LAPACK computes on the host.

    Args:
        loc: the mean, of shape (..., n).
        covariance_matrix: of shape (..., n, n), positive definite.
        precision_matrix: its inverse, in its place.
        scale_tril: its lower triangular factor with a positive diagonal, in its place.
        validate_args: as in :class:`Distribution`.

    Raises:
        ArgumentError: not exactly one matrix is given, or a parameter is not allowed.

    Example:
        >>> import dl4all as dl
        >>> covariance = dl.tensor([[4.0, 0.0], [0.0, 1.0]])
        >>> normal = dl.distributions.MultivariateNormal(dl.zeros(2), covariance)
        >>> normal.scale_tril.tolist(), round(normal.entropy().item(), 4)
        ([[2.0, 0.0], [0.0, 1.0]], 3.531)
    """

    has_rsample = True
    support = constraints.real_vector
    arg_constraints: ClassVar[dict[str, Any]] = {
        "loc": constraints.real_vector,
        "covariance_matrix": constraints.positive_definite,
        "precision_matrix": constraints.positive_definite,
        "scale_tril": constraints.lower_cholesky,
    }

    def __init__(
        self,
        loc: Tensor,
        covariance_matrix: Tensor | None = None,
        precision_matrix: Tensor | None = None,
        scale_tril: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        given = {
            "covariance_matrix": covariance_matrix,
            "precision_matrix": precision_matrix,
            "scale_tril": scale_tril,
        }
        matrices = [(name, matrix) for name, matrix in given.items() if matrix is not None]
        if len(matrices) != 1:
            raise ArgumentError(f"[MultivariateNormal] pass exactly one of {', '.join(given)}")
        [(name, matrix)] = matrices
        if loc.ndim < 1 or matrix.ndim < 2 or matrix.shape[-2:] != (loc.shape[-1],) * 2:
            raise ArgumentError(
                f"[MultivariateNormal] expected loc of shape (..., n) and {name} of (..., n, n), "
                f"got {loc.shape} and {matrix.shape}"
            )
        n = loc.shape[-1]
        like, _ = ops.broadcast_tensors(loc, matrix[..., 0])
        batch = like.shape[:-1]
        self.loc = loc.expand(*batch, n)
        matrix = matrix.expand(*batch, n, n)
        vars(self)[name] = matrix
        super().__init__(batch, (n,), validate_args=validate_args)
        if name == "covariance_matrix":
            self.scale_tril = ops.cholesky(matrix)
        elif name == "precision_matrix":
            # The factor of the inverse is the inverse of the reversed factor, transposed and reversed.
            reversed_factor = ops.cholesky(matrix.flip((-2, -1)))
            self.scale_tril = _inverse(reversed_factor.flip((-2, -1)).transpose(-2, -1))

    scale_tril: Tensor

    @lazy_property
    def covariance_matrix(self) -> Tensor:
        """The covariances of the elements."""
        return self.scale_tril @ self.scale_tril.transpose(-2, -1)

    @lazy_property
    def precision_matrix(self) -> Tensor:
        """The inverse of the covariances."""
        inverse = _inverse(self.scale_tril)
        return inverse.transpose(-2, -1) @ inverse

    def _solved(self, right: Tensor) -> Tensor:
        """The product of the factor's inverse with a matrix."""
        return _inverse(self.scale_tril) @ right

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        return self.scale_tril.square().sum(-1)

    def rsample(self, sample_shape: Any = NO_SHAPE) -> Tensor:
        normal = standard_normal(self._extended_shape(sample_shape), self.loc)
        return self.loc + (self.scale_tril @ normal.unsqueeze(-1)).squeeze(-1)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        distance = self._solved((value - self.loc).unsqueeze(-1)).square().sum((-2, -1))
        return -0.5 * distance - self.event_shape[0] * HALF_LOG_TAU - self._half_log_determinant()

    def entropy(self) -> Tensor:
        return self.event_shape[0] * (0.5 + HALF_LOG_TAU) + self._half_log_determinant()

    def _half_log_determinant(self) -> Tensor:
        return self.scale_tril.diagonal(dim1=-2, dim2=-1).log().sum(-1)


def _inverse(factor: Tensor) -> Tensor:
    """The inverses of lower triangular matrices."""
    unit = eye(factor.shape[-1], dtype=factor.dtype, device=factor.device)
    return ops.solve_triangular(factor, unit, upper=False)
