"""The gamma distribution and those that come of it: chi-squared, beta, Dirichlet and Student's t."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from dl4all import ops
from dl4all.distributions import constraints
from dl4all.distributions.distribution import (
    NO_SHAPE,
    Distribution,
    Parameter,
    broadcast_all,
    finfo_of,
    standard_normal,
)
from dl4all.distributions.gamma_samples import log_standard_gamma
from dl4all.errors import ArgumentError
from dl4all.tensor.creation import zeros_like
from dl4all.tensor.tensor import Tensor


class Gamma(Distribution):
    """The gamma distribution.

    Args:
        concentration: the shape, positive.
        rate: one over the scale, positive.
        validate_args: as in :class:`Distribution`.

    Raises:
        ArgumentError: a parameter is not allowed.

    Example:
        >>> import dl4all as dl
        >>> gamma = dl.distributions.Gamma(dl.tensor([1.0, 4.0]), 2.0)
        >>> gamma.mean.tolist(), gamma.sample((3,)).shape
        ([0.5, 2.0], (3, 2))
    """

    has_rsample = True
    support = constraints.nonnegative
    arg_constraints: ClassVar[dict[str, Any]] = {
        "concentration": constraints.positive,
        "rate": constraints.positive,
    }

    def __init__(self, concentration: Parameter, rate: Parameter, validate_args: bool | None = None) -> None:
        self.concentration, self.rate = broadcast_all(concentration, rate)
        super().__init__(self.concentration.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.concentration / self.rate

    @property
    def mode(self) -> Tensor:
        return ((self.concentration - 1) / self.rate).clamp(min=0)

    @property
    def variance(self) -> Tensor:
        return self.concentration / self.rate.square()

    def rsample(self, sample_shape: Any = NO_SHAPE) -> Tensor:
        shape = self._extended_shape(sample_shape)
        samples = log_standard_gamma(self.concentration.expand(*shape)).exp() / self.rate
        return samples.clamp(min=float(finfo_of(samples).tiny))

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        a, rate = self.concentration, self.rate
        return a * rate.log() + ops.xlogy(a - 1, value) - rate * value - a.lgamma()

    def entropy(self) -> Tensor:
        a = self.concentration
        result: Tensor = a - self.rate.log() + a.lgamma() + (1 - a) * a.digamma()
        return result


class Chi2(Gamma):
    """The chi-squared distribution: the sum of squares of normal numbers.

    Args:
        df: how many, the degrees of freedom, positive.
        validate_args: as in :class:`Distribution`.

    Raises:
        ArgumentError: a parameter is not allowed.

    Example:
        >>> import dl4all as dl
        >>> dl.distributions.Chi2(dl.tensor(3.0)).mean.item()
        3.0
    """

    def __init__(self, df: Parameter, validate_args: bool | None = None) -> None:
        (freedom,) = broadcast_all(df)
        super().__init__(0.5 * freedom, 0.5, validate_args=validate_args)

    @property
    def df(self) -> Tensor:
        """The degrees of freedom."""
        return self.concentration * 2


class Dirichlet(Distribution):
    """The Dirichlet distribution, of probabilities that sum to 1.

    Args:
        concentration: of shape (..., n), positive.
        validate_args: as in :class:`Distribution`.

    Raises:
        ArgumentError: a parameter is not allowed.

    Example:
        >>> import dl4all as dl
        >>> dirichlet = dl.distributions.Dirichlet(dl.tensor([1.0, 3.0]))
        >>> dirichlet.mean.tolist(), round(dirichlet.sample().sum().item(), 4)
        ([0.25, 0.75], 1.0)
    """

    has_rsample = True
    support = constraints.simplex
    arg_constraints: ClassVar[dict[str, Any]] = {
        "concentration": constraints.independent(constraints.positive, 1)
    }

    def __init__(self, concentration: Tensor, validate_args: bool | None = None) -> None:
        if getattr(concentration, "ndim", 0) < 1:
            raise ArgumentError("[Dirichlet] expected a concentration with at least one axis")
        self.concentration = concentration
        shape = concentration.shape
        super().__init__(shape[:-1], shape[-1:], validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.concentration / self.concentration.sum(-1, keepdim=True)

    @property
    def mode(self) -> Tensor:
        weights = (self.concentration - 1).clamp(min=0.0)
        mode = weights / weights.sum(-1, keepdim=True)
        highest = self.concentration.argmax(-1, keepdim=True)
        vertex = zeros_like(mode).scatter(-1, highest, 1.0)
        return ops.where((self.concentration < 1).all(-1, keepdim=True), vertex, mode)

    @property
    def variance(self) -> Tensor:
        total = self.concentration.sum(-1, keepdim=True)
        return self.concentration * (total - self.concentration) / (total.square() * (total + 1))

    def rsample(self, sample_shape: Any = NO_SHAPE) -> Tensor:
        shape = self._extended_shape(sample_shape)
        return log_standard_gamma(self.concentration.expand(*shape)).softmax(-1)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        a = self.concentration
        return ops.xlogy(a - 1, value).sum(-1) + a.sum(-1).lgamma() - a.lgamma().sum(-1)

    def entropy(self) -> Tensor:
        a, n = self.concentration, self.concentration.shape[-1]
        total = a.sum(-1)
        normalizer = a.lgamma().sum(-1) - total.lgamma()
        result: Tensor = normalizer - (n - total) * total.digamma() - ((a - 1) * a.digamma()).sum(-1)
        return result


class Beta(Distribution):
    """The beta distribution, of a probability.

    Args:
        concentration1, concentration0: often called alpha and beta, positive.
        validate_args: as in :class:`Distribution`.

    Raises:
        ArgumentError: a parameter is not allowed.

    Example:
        >>> import dl4all as dl
        >>> dl.distributions.Beta(1.0, 3.0).mean.item()
        0.25
    """

    has_rsample = True
    support = constraints.unit_interval
    arg_constraints: ClassVar[dict[str, Any]] = {
        "concentration1": constraints.positive,
        "concentration0": constraints.positive,
    }

    def __init__(
        self, concentration1: Parameter, concentration0: Parameter, validate_args: bool | None = None
    ) -> None:
        self.concentration1, self.concentration0 = broadcast_all(concentration1, concentration0)
        super().__init__(self.concentration1.shape, validate_args=validate_args)

    @property
    def _dirichlet(self) -> Dirichlet:
        both = ops.stack([self.concentration1, self.concentration0], -1)
        return Dirichlet(both, validate_args=False)

    @property
    def mean(self) -> Tensor:
        return self.concentration1 / (self.concentration1 + self.concentration0)

    @property
    def mode(self) -> Tensor:
        return self._dirichlet.mode[..., 0]

    @property
    def variance(self) -> Tensor:
        total = self.concentration1 + self.concentration0
        return self.concentration1 * self.concentration0 / (total.square() * (total + 1))

    def rsample(self, sample_shape: Any = NO_SHAPE) -> Tensor:
        return self._dirichlet.rsample(sample_shape)[..., 0]

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        return self._dirichlet.log_prob(ops.stack(ops.broadcast_tensors(value, 1.0 - value), -1))

    def entropy(self) -> Tensor:
        return self._dirichlet.entropy()


class StudentT(Distribution):
    """Student's t-distribution.

    Args:
        df: the degrees of freedom, positive.
        loc: the median.
        scale: the scale, positive.
        validate_args: as in :class:`Distribution`.

    Raises:
        ArgumentError: a parameter is not allowed.

    Example:
        >>> import dl4all as dl
        >>> dl.distributions.StudentT(4.0).variance.item()
        2.0
    """

    has_rsample = True
    support = constraints.real
    arg_constraints: ClassVar[dict[str, Any]] = {
        "df": constraints.positive,
        "loc": constraints.real,
        "scale": constraints.positive,
    }

    def __init__(
        self,
        df: Parameter,
        loc: Parameter = 0.0,
        scale: Parameter = 1.0,
        validate_args: bool | None = None,
    ) -> None:
        self.df, self.loc, self.scale = broadcast_all(df, loc, scale)
        super().__init__(self.df.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.loc.where(self.df > 1, math.nan)

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        variance = self.scale.square() * self.df / (self.df - 2).where(self.df > 2, 1.0)
        return variance.where(self.df > 2, math.inf).where(self.df > 1, math.nan)

    def rsample(self, sample_shape: Any = NO_SHAPE) -> Tensor:
        shape = self._extended_shape(sample_shape)
        normal = standard_normal(shape, self.df)
        half = log_standard_gamma((self.df / 2).expand(*shape))
        return self.loc + self.scale * normal * (0.5 * ((self.df / 2).log() - half)).exp()

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        y = (value - self.loc) / self.scale
        normalizer = (
            self.scale.log()
            + 0.5 * self.df.log()
            + 0.5 * math.log(math.pi)
            + (self.df / 2).lgamma()
            - ((self.df + 1) / 2).lgamma()
        )
        return -0.5 * (self.df + 1) * (y.square() / self.df).log1p() - normalizer

    def entropy(self) -> Tensor:
        half, more = self.df / 2, (self.df + 1) / 2
        beta = half.lgamma() + math.lgamma(0.5) - more.lgamma()
        return self.scale.log() + more * (more.digamma() - half.digamma()) + 0.5 * self.df.log() + beta
