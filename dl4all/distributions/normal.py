"""The normal distribution, its absolute value and its exponential."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from dl4all.distributions import constraints
from dl4all.distributions.distribution import (
    NO_SHAPE,
    Distribution,
    Parameter,
    broadcast_all,
    standard_normal,
)
from dl4all.tensor.tensor import Tensor

HALF_LOG_TAU = 0.5 * math.log(2 * math.pi)
SQRT2 = math.sqrt(2.0)


class Normal(Distribution):
    """The normal distribution.

    Args:
        loc: the mean.
        scale: the standard deviation, positive.
        validate_args: as in :class:`Distribution`.

    Raises:
        ArgumentError: a parameter is not allowed.

    Example:
        >>> import dl4all as dl
        >>> normal = dl.distributions.Normal(dl.tensor([0.0, 1.0]), 1.0)
        >>> [round(x, 4) for x in normal.log_prob(dl.tensor([0.0, 3.0])).tolist()]
        [-0.9189, -2.9189]
        >>> normal.rsample((5,)).shape
        (5, 2)
    """

    has_rsample = True
    support = constraints.real
    arg_constraints: ClassVar[dict[str, Any]] = {"loc": constraints.real, "scale": constraints.positive}

    def __init__(self, loc: Parameter, scale: Parameter, validate_args: bool | None = None) -> None:
        self.loc, self.scale = broadcast_all(loc, scale)
        super().__init__(self.loc.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def stddev(self) -> Tensor:
        return self.scale

    @property
    def variance(self) -> Tensor:
        return self.scale.square()

    def rsample(self, sample_shape: Any = NO_SHAPE) -> Tensor:
        return self.loc + self.scale * standard_normal(self._extended_shape(sample_shape), self.loc)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        return -(((value - self.loc) / self.scale).square()) / 2 - self.scale.log() - HALF_LOG_TAU

    def cdf(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        return 0.5 * (1 + ((value - self.loc) / (self.scale * SQRT2)).erf())

    def icdf(self, value: Tensor) -> Tensor:
        return self.loc + self.scale * (2 * value - 1).erfinv() * SQRT2

    def entropy(self) -> Tensor:
        return 0.5 + HALF_LOG_TAU + self.scale.log()


class HalfNormal(Distribution):
    """The absolute value of normal numbers with mean 0.

    Args:
        scale: their standard deviation, positive.
        validate_args: as in :class:`Distribution`.

    Raises:
        ArgumentError: a parameter is not allowed.

    Example:
        >>> import dl4all as dl
        >>> round(dl.distributions.HalfNormal(1.0).mean.item(), 4)
        0.7979
    """

    has_rsample = True
    support = constraints.nonnegative
    arg_constraints: ClassVar[dict[str, Any]] = {"scale": constraints.positive}

    def __init__(self, scale: Parameter, validate_args: bool | None = None) -> None:
        (self.scale,) = broadcast_all(scale)
        super().__init__(self.scale.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.scale * math.sqrt(2 / math.pi)

    @property
    def mode(self) -> Tensor:
        return self.scale * 0

    @property
    def variance(self) -> Tensor:
        return self.scale.square() * (1 - 2 / math.pi)

    def rsample(self, sample_shape: Any = NO_SHAPE) -> Tensor:
        return (self.scale * standard_normal(self._extended_shape(sample_shape), self.scale)).abs()

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        density = math.log(2) - HALF_LOG_TAU - (value / self.scale).square() / 2 - self.scale.log()
        result: Tensor = density.where(value >= 0, -math.inf)
        return result

    def cdf(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        return (value / (self.scale * SQRT2)).erf()

    def icdf(self, value: Tensor) -> Tensor:
        return self.scale * value.erfinv() * SQRT2

    def entropy(self) -> Tensor:
        return 0.5 + HALF_LOG_TAU - math.log(2) + self.scale.log()
