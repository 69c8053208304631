"""Distributions of functions of samples."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

from dl4all.autograd import no_grad
from dl4all.distributions import constraints
from dl4all.distributions.constraints import Constraint
from dl4all.distributions.distribution import NO_SHAPE, Distribution, Parameter, sum_rightmost
from dl4all.distributions.independent import Independent
from dl4all.distributions.normal import Normal
from dl4all.distributions.transforms import ExpTransform, Transform, composed
from dl4all.tensor.tensor import Tensor


class TransformedDistribution(Distribution):
    """The distribution of a function of the samples of another one.

    Args:
        base_distribution: the other one.
        transforms: the function, or several to apply one after another.
        validate_args: as in :class:`Distribution`.

    Raises:
        ArgumentError: a function is no transform.

    Example:
        >>> import dl4all as dl
        >>> from dl4all.distributions import Normal, TransformedDistribution, transforms
        >>> log_normal = TransformedDistribution(Normal(0.0, 1.0), [transforms.ExpTransform()])
        >>> round(log_normal.log_prob(dl.tensor(1.0)).item(), 4)
        -0.9189
    """

    arg_constraints: ClassVar[dict[str, Any]] = {}

    def __init__(
        self,
        base_distribution: Distribution,
        transforms: Transform | Sequence[Transform],
        validate_args: bool | None = None,
    ) -> None:
        self.transforms = composed(transforms)
        events = max([len(base_distribution.event_shape), *(part.event_dim for part in self.transforms)])
        extra = events - len(base_distribution.event_shape)
        self.base_dist = Independent(base_distribution, extra) if extra else base_distribution
        shape = tuple(self.base_dist.batch_shape) + tuple(self.base_dist.event_shape)
        for part in self.transforms:
            shape = part.forward_shape(shape)
        first = len(shape) - events
        super().__init__(shape[:first], shape[first:], validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        expanded = super().expand(batch_shape)
        expanded.base_dist = self.base_dist.expand(batch_shape)
        return expanded

    @property
    def has_rsample(self) -> bool:  # type: ignore[override]
        """Whether gradients flow through samples."""
        return self.base_dist.has_rsample

    @property
    def support(self) -> Constraint:
        if not self.transforms:
            return self.base_dist.support
        codomain = self.transforms[-1].codomain
        missing = len(self.event_shape) - codomain.event_dim
        return constraints.independent(codomain, missing) if missing > 0 else codomain

    def sample(self, sample_shape: Any = NO_SHAPE) -> Tensor:
        with no_grad():
            return self._transformed(self.base_dist.sample(sample_shape))

    def rsample(self, sample_shape: Any = NO_SHAPE) -> Tensor:
        return self._transformed(self.base_dist.rsample(sample_shape))

    def _transformed(self, x: Tensor) -> Tensor:
        for part in self.transforms:
            x = part(x)
        return x

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        events, y = len(self.event_shape), value
        total: Tensor | float = 0.0
        for part in reversed(self.transforms):
            x = part._inverse(y)
            total = total - sum_rightmost(part.log_abs_det_jacobian(x, y), events - part.event_dim)
            y = x
        inner = sum_rightmost(self.base_dist.log_prob(y), events - len(self.base_dist.event_shape))
        return inner + total

    def cdf(self, value: Tensor) -> Tensor:
        sign = 1
        for part in reversed(self.transforms):
            value, sign = part._inverse(value), sign * part.sign
        found = self.base_dist.cdf(value)
        return found if sign > 0 else 1 - found

    def icdf(self, value: Tensor) -> Tensor:
        sign = math.prod(part.sign for part in self.transforms)
        return self._transformed(self.base_dist.icdf(value if sign > 0 else 1 - value))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.base_dist}, {self.transforms})"


class LogNormal(TransformedDistribution):
    """The distribution of the exponential of normal numbers.

    Args:
        loc, scale: their mean and standard deviation.
        validate_args: as in :class:`Distribution`.

    Raises:
        ArgumentError: a parameter is not allowed.

    Example:
        >>> import dl4all as dl
        >>> round(dl.distributions.LogNormal(0.0, 1.0).mean.item(), 4)
        1.6487
    """

    support = constraints.positive
    arg_constraints: ClassVar[dict[str, Any]] = Normal.arg_constraints

    def __init__(self, loc: Parameter, scale: Parameter, validate_args: bool | None = None) -> None:
        base = Normal(loc, scale, validate_args=validate_args)
        super().__init__(base, ExpTransform(), validate_args=validate_args)

    @property
    def loc(self) -> Tensor:
        """The mean of the logarithm."""
        found: Tensor = self.base_dist.loc  # type: ignore[attr-defined]
        return found

    @property
    def scale(self) -> Tensor:
        """The standard deviation of the logarithm."""
        found: Tensor = self.base_dist.scale  # type: ignore[attr-defined]
        return found

    @property
    def mean(self) -> Tensor:
        return (self.loc + self.scale.square() / 2).exp()

    @property
    def mode(self) -> Tensor:
        return (self.loc - self.scale.square()).exp()

    @property
    def variance(self) -> Tensor:
        square = self.scale.square()
        return square.expm1() * (2 * self.loc + square).exp()

    def entropy(self) -> Tensor:
        return self.base_dist.entropy() + self.loc
