"""Axes of a batch as axes of one sample."""

from __future__ import annotations

from typing import Any, ClassVar

from dl4all.distributions import constraints
from dl4all.distributions.constraints import Constraint
from dl4all.distributions.distribution import NO_SHAPE, Distribution, sum_rightmost
from dl4all.errors import ArgumentError
from dl4all.tensor.tensor import Tensor


class Independent(Distribution):
    """A distribution whose last axes of the batch are taken as axes of one sample.

    Args:
        base_distribution: the distribution.
        reinterpreted_batch_ndims: how many axes.
        validate_args: as in :class:`Distribution`.

    Raises:
        ArgumentError: the batch has fewer axes.

    Example:
        >>> import dl4all as dl
        >>> normal = dl.distributions.Normal(dl.zeros(5, 3), 1.0)
        >>> diagonal = dl.distributions.Independent(normal, 1)
        >>> diagonal.batch_shape, diagonal.event_shape, diagonal.log_prob(dl.zeros(3)).shape
        ((5,), (3,), (5,))
    """

    arg_constraints: ClassVar[dict[str, Any]] = {}

    def __init__(
        self,
        base_distribution: Distribution,
        reinterpreted_batch_ndims: int,
        validate_args: bool | None = None,
    ) -> None:
        batch, events = base_distribution.batch_shape, base_distribution.event_shape
        if not 0 <= reinterpreted_batch_ndims <= len(batch):
            raise ArgumentError(
                f"[Independent] expected from 0 to {len(batch)} axes of the batch, "
                f"got {reinterpreted_batch_ndims}"
            )
        shape = (*batch, *events)
        first = len(batch) - reinterpreted_batch_ndims
        self.base_dist = base_distribution
        self.reinterpreted_batch_ndims = reinterpreted_batch_ndims
        super().__init__(shape[:first], shape[first:], validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        own = tuple(self.event_shape)[: self.reinterpreted_batch_ndims]
        base = self.base_dist.expand((*batch_shape, *own))
        return Independent(base, self.reinterpreted_batch_ndims, validate_args=False)

    @property
    def has_rsample(self) -> bool:  # type: ignore[override]
        """Whether gradients flow through samples."""
        return self.base_dist.has_rsample

    @property
    def support(self) -> Constraint:
        base = self.base_dist.support
        return constraints.independent(base, self.reinterpreted_batch_ndims)

    @property
    def mean(self) -> Tensor:
        return self.base_dist.mean

    @property
    def mode(self) -> Tensor:
        return self.base_dist.mode

    @property
    def variance(self) -> Tensor:
        return self.base_dist.variance

    def sample(self, sample_shape: Any = NO_SHAPE) -> Tensor:
        return self.base_dist.sample(sample_shape)

    def rsample(self, sample_shape: Any = NO_SHAPE) -> Tensor:
        return self.base_dist.rsample(sample_shape)

    def log_prob(self, value: Tensor) -> Tensor:
        return sum_rightmost(self.base_dist.log_prob(value), self.reinterpreted_batch_ndims)

    def entropy(self) -> Tensor:
        return sum_rightmost(self.base_dist.entropy(), self.reinterpreted_batch_ndims)

    def __repr__(self) -> str:
        return f"Independent({self.base_dist}, {self.reinterpreted_batch_ndims})"
