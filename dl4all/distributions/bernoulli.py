"""Distributions of trials that succeed with a probability: Bernoulli and geometric."""

from __future__ import annotations

from typing import Any, ClassVar

from dl4all import ops
from dl4all.distributions import constraints
from dl4all.distributions.categorical import given_one
from dl4all.distributions.distribution import (
    NO_SHAPE,
    Distribution,
    Parameter,
    broadcast_all,
    lazy_property,
    logits_to_probs,
    probs_to_logits,
    uniform,
)
from dl4all.errors import ArgumentError
from dl4all.ops.core.tensor_base import Size
from dl4all.tensor.ranges import arange
from dl4all.tensor.tensor import Tensor

PROBS_OR_LOGITS: dict[str, Any] = {"probs": constraints.unit_interval, "logits": constraints.real}


class Trial(Distribution):
    """Base class: a probability of success, or its log-odds."""

    arg_constraints: ClassVar[dict[str, Any]] = PROBS_OR_LOGITS

    def _give(
        self, probs: Parameter | None, logits: Parameter | None, *others: Parameter
    ) -> tuple[Tensor, ...]:
        """Keep whichever is given; returns it and the other parameters, all of one shape."""
        given, *rest = broadcast_all(given_one(self, probs, logits), *others)
        vars(self)["logits" if probs is None else "probs"] = given
        return given, *rest

    @lazy_property
    def logits(self) -> Tensor:
        """The log-odds."""
        return probs_to_logits(self.probs, is_binary=True)

    @lazy_property
    def probs(self) -> Tensor:
        """The probability."""
        return logits_to_probs(self.logits, is_binary=True)

    @property
    def param(self) -> Tensor:
        """The parameter that was given: probabilities or log-odds."""
        found: Tensor = vars(self)["probs" if "probs" in vars(self) else "logits"]
        return found

    @property
    def param_shape(self) -> Size:
        """The shape of the probability."""
        return Size(self.param.shape)


class Bernoulli(Trial):
    """The distribution of 1 with a probability, and 0 otherwise.

    Args:
        probs: the probability of 1.
        logits: its log-odds, in place of `probs`.
        validate_args: as in :class:`Distribution`.

    Raises:
        ArgumentError: not exactly one of `probs` and `logits` is given, or one is not allowed.

    Example:
        >>> import dl4all as dl
        >>> coins = dl.distributions.Bernoulli(dl.tensor([0.0, 1.0]))
        >>> coins.sample((2,)).tolist()
        [[0.0, 1.0], [0.0, 1.0]]
    """

    has_enumerate_support = True
    support = constraints.boolean

    def __init__(
        self,
        probs: Parameter | None = None,
        logits: Parameter | None = None,
        validate_args: bool | None = None,
    ) -> None:
        (given,) = self._give(probs, logits)
        super().__init__(given.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.probs

    @property
    def mode(self) -> Tensor:
        mode = (self.probs >= 0.5).to(self.probs.dtype)
        return mode.where(self.probs != 0.5, float("nan"))

    @property
    def variance(self) -> Tensor:
        result: Tensor = self.probs * (1 - self.probs)
        return result

    def sample(self, sample_shape: Any = NO_SHAPE) -> Tensor:
        probs = self.probs.detach()
        units = probs.new_empty(self._extended_shape(sample_shape)).uniform_()
        return (units < probs).to(probs.dtype)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        logits = self.logits
        return value * logits - log_normalizer(logits)

    def entropy(self) -> Tensor:
        return log_normalizer(self.logits) - self.probs * self.logits

    def enumerate_support(self, expand: bool = True) -> Tensor:
        values = arange(2, dtype=self.probs.dtype, device=self.probs.device)
        values = values.reshape(-1, *[1] * len(self._batch_shape))
        return values.expand(-1, *self._batch_shape) if expand else values


class Geometric(Trial):
    """The distribution of the number of failures before the first success.

    Args:
        probs: the probability of success, above 0.
        logits: its log-odds, in place of `probs`.
        validate_args: as in :class:`Distribution`.

    Raises:
        ArgumentError: not exactly one of `probs` and `logits` is given, or one is not allowed.

    Example:
        >>> import dl4all as dl
        >>> dl.distributions.Geometric(0.25).mean.item()
        3.0
    """

    support = constraints.nonnegative_integer

    def __init__(
        self,
        probs: Parameter | None = None,
        logits: Parameter | None = None,
        validate_args: bool | None = None,
    ) -> None:
        (given,) = self._give(probs, logits)
        super().__init__(given.shape, validate_args=validate_args)
        if self._validate_args and probs is not None and not bool((given > 0).all()):
            raise ArgumentError("[Geometric] expected probs above 0")

    @property
    def mean(self) -> Tensor:
        result: Tensor = 1.0 / self.probs - 1.0
        return result

    @property
    def mode(self) -> Tensor:
        return self.probs * 0

    @property
    def variance(self) -> Tensor:
        result: Tensor = (1.0 / self.probs - 1.0) / self.probs
        return result

    def sample(self, sample_shape: Any = NO_SHAPE) -> Tensor:
        probs = self.probs.detach()
        return (uniform(self._extended_shape(sample_shape), probs).log() / (-probs).log1p()).floor()

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        return ops.xlogy(value, 1 - self.probs) + self.probs.log()

    def entropy(self) -> Tensor:
        return (log_normalizer(self.logits) - self.probs * self.logits) / self.probs


def log_normalizer(logits: Tensor) -> Tensor:
    """``log(1 + exp(logits))``, whatever their size."""
    return logits.clamp(min=0) + (-logits.abs()).exp().log1p()
