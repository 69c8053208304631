"""Continuous distributions with a location and a scale: uniform, Laplace, Cauchy, Gumbel, exponential."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from dl4all.distributions import constraints
from dl4all.distributions.constraints import Constraint
from dl4all.distributions.distribution import NO_SHAPE, Distribution, Parameter, broadcast_all, uniform
from dl4all.errors import ArgumentError
from dl4all.tensor.tensor import Tensor

EULER = 0.57721566490153286060


class Uniform(Distribution):
    """The uniform distribution on [low, high).

    Args:
        low, high: the ends, `low` below `high`.
        validate_args: as in :class:`Distribution`.

    Raises:
        ArgumentError: `low` is not below `high`.

    Example:
        >>> import dl4all as dl
        >>> dl.distributions.Uniform(0.0, 4.0).log_prob(dl.tensor(1.0)).exp().item()
        0.25
    """

    has_rsample = True
    arg_constraints: ClassVar[dict[str, Any]] = {"low": constraints.dependent, "high": constraints.dependent}

    def __init__(self, low: Parameter, high: Parameter, validate_args: bool | None = None) -> None:
        self.low, self.high = broadcast_all(low, high)
        super().__init__(self.low.shape, validate_args=validate_args)
        if self._validate_args and not bool((self.low < self.high).all()):
            raise ArgumentError("[Uniform] is not defined when low >= high")

    @property
    def support(self) -> Constraint:
        return constraints.interval(self.low, self.high)

    @property
    def mean(self) -> Tensor:
        return (self.high + self.low) / 2

    @property
    def mode(self) -> Tensor:
        return self.high * math.nan

    @property
    def variance(self) -> Tensor:
        return (self.high - self.low).square() / 12

    def rsample(self, sample_shape: Any = NO_SHAPE) -> Tensor:
        units = self.low.new_empty(self._extended_shape(sample_shape)).uniform_()
        return self.low + units * (self.high - self.low)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        inside = (self.low <= value) & (value < self.high)
        return (-(self.high - self.low).log()).where(inside, -math.inf)

    def cdf(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        return ((value - self.low) / (self.high - self.low)).clamp(min=0, max=1)

    def icdf(self, value: Tensor) -> Tensor:
        return value * (self.high - self.low) + self.low

    def entropy(self) -> Tensor:
        return (self.high - self.low).log()


class _LocationScale(Distribution):
    """Base class: samples are ``loc + scale * icdf(u)`` of the standard distribution, of uniform u."""

    has_rsample = True
    support = constraints.real
    arg_constraints: ClassVar[dict[str, Any]] = {"loc": constraints.real, "scale": constraints.positive}

    def __init__(self, loc: Parameter, scale: Parameter, validate_args: bool | None = None) -> None:
        self.loc, self.scale = broadcast_all(loc, scale)
        super().__init__(self.loc.shape, validate_args=validate_args)

    @property
    def mode(self) -> Tensor:
        return self.loc

    def rsample(self, sample_shape: Any = NO_SHAPE) -> Tensor:
        return self.icdf(uniform(self._extended_shape(sample_shape), self.loc))

    def _standard(self, value: Tensor) -> Tensor:
        """The value with location 0 and scale 1."""
        if self._validate_args:
            self._validate_sample(value)
        return (value - self.loc) / self.scale


class Laplace(_LocationScale):
    """The Laplace distribution.

    Args:
        loc: the mean.
        scale: the mean distance from it, positive.
        validate_args: as in :class:`Distribution`.

    Raises:
        ArgumentError: a parameter is not allowed.

    Example:
        >>> import dl4all as dl
        >>> dl.distributions.Laplace(0.0, 0.5).log_prob(dl.tensor(1.0)).item()
        -2.0
    """

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        return 2 * self.scale.square()

    def log_prob(self, value: Tensor) -> Tensor:
        return -(2 * self.scale).log() - self._standard(value).abs()

    def cdf(self, value: Tensor) -> Tensor:
        x = self._standard(value)
        result: Tensor = 0.5 - 0.5 * x.sign() * (-x.abs()).expm1()
        return result

    def icdf(self, value: Tensor) -> Tensor:
        term = value - 0.5
        return self.loc - self.scale * term.sign() * (-2 * term.abs()).log1p()

    def entropy(self) -> Tensor:
        return 1 + (2 * self.scale).log()


class Cauchy(_LocationScale):
    """The Cauchy distribution, which has no mean.

    Args:
        loc: the median.
        scale: the half width at half the highest density, positive.
        validate_args: as in :class:`Distribution`.

    Raises:
        ArgumentError: a parameter is not allowed.

    Example:
        >>> import dl4all as dl
        >>> round(dl.distributions.Cauchy(0.0, 1.0).cdf(dl.tensor(1.0)).item(), 4)
        0.75
    """

    @property
    def mean(self) -> Tensor:
        return self.loc * math.nan

    @property
    def variance(self) -> Tensor:
        return self.scale * 0 + math.inf

    def log_prob(self, value: Tensor) -> Tensor:
        result: Tensor = -math.log(math.pi) - self.scale.log() - self._standard(value).square().log1p()
        return result

    def cdf(self, value: Tensor) -> Tensor:
        return self._standard(value).atan() / math.pi + 0.5

    def icdf(self, value: Tensor) -> Tensor:
        return (math.pi * (value - 0.5)).tan() * self.scale + self.loc

    def entropy(self) -> Tensor:
        return math.log(4 * math.pi) + self.scale.log()


class Gumbel(_LocationScale):
    """The Gumbel distribution, of the largest of many samples.

    Args:
        loc: the mode.
        scale: the scale, positive.
        validate_args: as in :class:`Distribution`.

    Raises:
        ArgumentError: a parameter is not allowed.

    Example:
        >>> import dl4all as dl
        >>> round(dl.distributions.Gumbel(0.0, 1.0).mean.item(), 4)
        0.5772
    """

    @property
    def mean(self) -> Tensor:
        return self.loc + self.scale * EULER

    @property
    def variance(self) -> Tensor:
        return self.scale.square() * (math.pi**2 / 6)

    def log_prob(self, value: Tensor) -> Tensor:
        x = self._standard(value)
        return -x - (-x).exp() - self.scale.log()

    def cdf(self, value: Tensor) -> Tensor:
        return (-(-self._standard(value)).exp()).exp()

    def icdf(self, value: Tensor) -> Tensor:
        return self.loc - self.scale * (-value.log()).log()

    def entropy(self) -> Tensor:
        return self.scale.log() + (1 + EULER)


class HalfCauchy(Distribution):
    """The absolute value of Cauchy numbers with median 0.

    Args:
        scale: their scale, positive.
        validate_args: as in :class:`Distribution`.

    Raises:
        ArgumentError: a parameter is not allowed.

    Example:
        >>> import dl4all as dl
        >>> round(dl.distributions.HalfCauchy(1.0).cdf(dl.tensor(1.0)).item(), 4)
        0.5
    """

    has_rsample = True
    support = constraints.nonnegative
    arg_constraints: ClassVar[dict[str, Any]] = {"scale": constraints.positive}

    def __init__(self, scale: Parameter, validate_args: bool | None = None) -> None:
        (self.scale,) = broadcast_all(scale)
        super().__init__(self.scale.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.scale * 0 + math.inf

    @property
    def mode(self) -> Tensor:
        return self.scale * 0

    @property
    def variance(self) -> Tensor:
        return self.scale * 0 + math.inf

    def rsample(self, sample_shape: Any = NO_SHAPE) -> Tensor:
        return self.icdf(uniform(self._extended_shape(sample_shape), self.scale))

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        density = math.log(2 / math.pi) - self.scale.log() - (value / self.scale).square().log1p()
        result: Tensor = density.where(value >= 0, -math.inf)
        return result

    def cdf(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        return (value / self.scale).atan() * (2 / math.pi)

    def icdf(self, value: Tensor) -> Tensor:
        return (value * (math.pi / 2)).tan() * self.scale

    def entropy(self) -> Tensor:
        return math.log(2 * math.pi) + self.scale.log()


class Exponential(Distribution):
    """The exponential distribution, of waiting times.

    Args:
        rate: one over the mean, positive.
        validate_args: as in :class:`Distribution`.

    Raises:
        ArgumentError: a parameter is not allowed.

    Example:
        >>> import dl4all as dl
        >>> dl.distributions.Exponential(2.0).mean.item()
        0.5
    """

    has_rsample = True
    support = constraints.nonnegative
    arg_constraints: ClassVar[dict[str, Any]] = {"rate": constraints.positive}

    def __init__(self, rate: Parameter, validate_args: bool | None = None) -> None:
        (self.rate,) = broadcast_all(rate)
        super().__init__(self.rate.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.rate.reciprocal()

    @property
    def mode(self) -> Tensor:
        return self.rate * 0

    @property
    def stddev(self) -> Tensor:
        return self.rate.reciprocal()

    @property
    def variance(self) -> Tensor:
        return self.rate.square().reciprocal()

    def rsample(self, sample_shape: Any = NO_SHAPE) -> Tensor:
        return -uniform(self._extended_shape(sample_shape), self.rate).log() / self.rate

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        return self.rate.log() - self.rate * value

    def cdf(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        return -(-self.rate * value).expm1()

    def icdf(self, value: Tensor) -> Tensor:
        return -(-value).log1p() / self.rate

    def entropy(self) -> Tensor:
        result: Tensor = 1 - self.rate.log()
        return result
