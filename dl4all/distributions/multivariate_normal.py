"""The normal distribution of vectors."""

from __future__ import annotations

from typing import Any, ClassVar

from dl4all import ops
from dl4all.distributions import constraints
from dl4all.distributions.distribution import NO_SHAPE, Distribution, standard_normal
from dl4all.distributions.normal import HALF_LOG_TAU
from dl4all.errors import ArgumentError
from dl4all.tensor.ranges import eye
from dl4all.tensor.tensor import Tensor


class MultivariateNormal(Distribution):
    """The normal distribution of vectors of n elements.

    Matrices are factored and systems solved row by row, with 2 n launches or so: meant for n up to about 100.

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
            factor = cholesky(matrix)
        elif name == "precision_matrix":
            # The factor of the inverse is the inverse of the reversed factor, transposed and reversed.
            reversed_factor = cholesky(matrix.flip((-2, -1)))
            transposed = reversed_factor.flip((-2, -1)).transpose(-2, -1)
            factor = solve_lower(transposed, eye(n, dtype=loc.dtype, device=loc.device).expand(*batch, n, n))
        else:
            factor = matrix
        if self._validate_args and not bool((factor.diagonal(dim1=-2, dim2=-1) > 0).all()):
            raise ArgumentError(f"[MultivariateNormal] {name} is not positive definite")
        vars(self)["scale_tril"] = factor

    scale_tril: Tensor

    def __getattr__(self, name: str) -> Any:
        if name == "covariance_matrix":
            return self.scale_tril @ self.scale_tril.transpose(-2, -1)
        if name == "precision_matrix":
            n = self.event_shape[0]
            unit = eye(n, dtype=self.loc.dtype, device=self.loc.device)
            inverse = self._solved(unit.expand(*self.batch_shape, n, n))
            return inverse.transpose(-2, -1) @ inverse
        raise AttributeError(f"{type(self).__name__} has no attribute {name}")

    def _solved(self, right: Tensor) -> Tensor:
        """The product of the factor's inverse with a matrix."""
        return solve_lower(self.scale_tril, right)

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


def cholesky(matrix: Tensor) -> Tensor:
    """The lower triangular factor of positive definite matrices, column by column.

    Args:
        matrix: of shape (..., n, n); of what is not symmetric the mean with its transpose is taken.

    Returns:
        Of the same shape; with nan where a matrix is not positive definite.
    """
    matrix = (matrix + matrix.transpose(-2, -1)) / 2
    columns = list[Tensor]()
    for k in range(matrix.shape[-1]):
        column = matrix[..., k:, k]
        for other, j in zip(columns, range(k), strict=True):
            column = column - other[..., k - j :] * other[..., k - j].unsqueeze(-1)
        columns.append(column / column[..., :1].sqrt())
    padded = [
        ops.cat([column.new_zeros((*column.shape[:-1], k)), column], -1) for k, column in enumerate(columns)
    ]
    return ops.stack(padded, -1)


def solve_lower(factor: Tensor, right: Tensor) -> Tensor:
    """The solution x of ``factor @ x = right`` for lower triangular matrices, row by row.

    Args:
        factor: of shape (..., n, n).
        right: of shape (..., n, m), broadcast with the factor.
    """
    rows = list[Tensor]()
    for k in range(factor.shape[-1]):
        row = right[..., k : k + 1, :]
        if rows:
            row = row - factor[..., k : k + 1, :k] @ ops.cat(rows, -2)
        rows.append(row / factor[..., k : k + 1, k : k + 1])
    shape = ops.broadcast_tensors(*rows)
    return ops.cat(list(shape), -2)
