"""Distributions of counts: binomial, multinomial, Poisson and negative binomial."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from dl4all import ops
from dl4all.distributions import constraints
from dl4all.distributions.bernoulli import PROBS_OR_LOGITS, Trial, log_normalizer
from dl4all.distributions.categorical import Categorical
from dl4all.distributions.constraints import Constraint
from dl4all.distributions.distribution import NO_SHAPE, Distribution, Parameter, broadcast_all
from dl4all.distributions.gamma_samples import log_standard_gamma
from dl4all.errors import ArgumentError
from dl4all.functions.host import computed_on_host, to_device_of
from dl4all.ops.core.tensor_base import Size
from dl4all.ops.random.generator import default_generator
from dl4all.tensor.creation import ones_like, zeros_like
from dl4all.tensor.ranges import arange
from dl4all.tensor.tensor import Tensor

NDArray = np.ndarray[Any, Any]


@computed_on_host("distributions.sample")
def _drawn(like: Tensor, draw: Callable[..., NDArray], *parameters: Tensor) -> Tensor:
    """Numbers that NumPy draws on the host, seeded by the default generator."""
    arrays = [one.on_host().astype(np.float64) for one in parameters]
    seed, offset = default_generator().draw(1)
    numbers = np.random.Generator(np.random.Philox(key=np.uint64(seed), counter=[int(offset), 0, 0, 0]))
    drawn: Tensor = to_device_of(like, np.asarray(draw(numbers, *arrays)).astype(like.dtype))
    return drawn


class Binomial(Trial):
    """The distribution of the number of successes in independent trials.

    Args:
        total_count: the number of trials, a number or a tensor.
        probs: the probability of success.
        logits: its log-odds, in place of `probs`.
        validate_args: as in :class:`Distribution`.

    Raises:
        ArgumentError: not exactly one of `probs` and `logits` is given, or one is not allowed.

    Example:
        >>> import dl4all as dl
        >>> dl.distributions.Binomial(8, dl.tensor([0.0, 0.5, 1.0])).mean.tolist()
        [0.0, 4.0, 8.0]
    """

    has_enumerate_support = True
    arg_constraints: ClassVar[dict[str, Any]] = {
        "total_count": constraints.nonnegative_integer,
        **PROBS_OR_LOGITS,
    }

    def __init__(
        self,
        total_count: Parameter = 1,
        probs: Parameter | None = None,
        logits: Parameter | None = None,
        validate_args: bool | None = None,
    ) -> None:
        given, self.total_count = self._give(probs, logits, total_count)
        super().__init__(given.shape, validate_args=validate_args)

    @property
    def support(self) -> Constraint:
        return constraints.integer_interval(0, self.total_count)

    @property
    def mean(self) -> Tensor:
        return self.total_count * self.probs

    @property
    def mode(self) -> Tensor:
        highest = ((self.total_count + 1) * self.probs).floor()
        return ops.minimum(highest, self.total_count)

    @property
    def variance(self) -> Tensor:
        result: Tensor = self.total_count * self.probs * (1 - self.probs)
        return result

    def sample(self, sample_shape: Any = NO_SHAPE) -> Tensor:
        shape = self._extended_shape(sample_shape)

        def draw(numbers: Any, counts: NDArray, probs: NDArray) -> NDArray:
            drawn: NDArray = numbers.binomial(counts.astype(np.int64), np.clip(probs, 0, 1), shape)
            return drawn

        probs = self.probs.detach()
        return _drawn(probs, draw, self.total_count.detach(), probs)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        n, logits = self.total_count, self.logits
        choices = (n + 1).lgamma() - (value + 1).lgamma() - (n - value + 1).lgamma()
        return choices + value * logits - n * log_normalizer(logits)

    def entropy(self) -> Tensor:
        values = self._same_count_support()
        logarithm = self.log_prob(values)
        return -(logarithm.exp() * logarithm).sum(0)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        values = self._same_count_support()
        return values.expand(-1, *self._batch_shape) if expand else values

    def _same_count_support(self) -> Tensor:
        """
        Raises:
            ArgumentError: the numbers of trials differ.
        """
        most = int(self.total_count.max().item())
        if int(self.total_count.min().item()) != most:
            raise ArgumentError("[Binomial] numbers of trials that differ have no common support")
        values = arange(most + 1, dtype=self.probs.dtype, device=self.probs.device)
        return values.reshape(-1, *[1] * len(self._batch_shape))


class Multinomial(Distribution):
    """The distribution of how often each of several classes comes in independent trials.

    Args:
        total_count: the number of trials.
        probs, logits: as in :class:`Categorical`.
        validate_args: as in :class:`Distribution`.

    Raises:
        ArgumentError: as in :class:`Categorical`.

    Example:
        >>> import dl4all as dl
        >>> counts = dl.distributions.Multinomial(10, dl.tensor([0.2, 0.8])).sample()
        >>> counts.shape, counts.sum().item()
        ((2,), 10.0)
    """

    arg_constraints: ClassVar[dict[str, Any]] = Categorical.arg_constraints

    def __init__(
        self,
        total_count: int = 1,
        probs: Tensor | None = None,
        logits: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        if not isinstance(total_count, int):
            raise ArgumentError(f"[Multinomial] expected an int as total_count, got {total_count!r}")
        self.total_count = total_count
        self._categorical = Categorical(probs, logits, validate_args)
        events = (self._categorical._num_events,)
        super().__init__(self._categorical.batch_shape, events, validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        expanded = super().expand(batch_shape)
        expanded._categorical = self._categorical.expand(batch_shape)
        return expanded

    @property
    def support(self) -> Constraint:
        return constraints.multinomial(self.total_count)

    @property
    def probs(self) -> Tensor:
        """The probabilities."""
        return self._categorical.probs

    @property
    def logits(self) -> Tensor:
        """The logarithms of the probabilities."""
        return self._categorical.logits

    @property
    def param_shape(self) -> Size:
        """The shape of the probabilities."""
        return self._categorical.param_shape

    @property
    def mean(self) -> Tensor:
        return self.probs * self.total_count

    @property
    def variance(self) -> Tensor:
        result: Tensor = self.total_count * self.probs * (1 - self.probs)
        return result

    def sample(self, sample_shape: Any = NO_SHAPE) -> Tensor:
        drawn = self._categorical.sample((self.total_count, *sample_shape))
        drawn = drawn.reshape(self.total_count, -1).T
        probs = self.probs.detach()
        counts = probs.new_zeros((drawn.shape[0], probs.shape[-1]))
        counts = counts.scatter_add(-1, drawn, ones_like(drawn).to(probs.dtype))
        return counts.reshape(self._extended_shape(sample_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        choices = (value.sum(-1) + 1).lgamma() - (value + 1).lgamma().sum(-1)
        impossible = (value == 0) & (self.logits == -float("inf"))
        return choices + (ops.where(impossible, zeros_like(self.logits), self.logits) * value).sum(-1)

    def entropy(self) -> Tensor:
        n, probs = self.total_count, self.probs
        values = arange(1, n + 1, dtype=probs.dtype, device=probs.device)
        values = values.reshape(-1, *[1] * probs.ndim)
        binomial = Binomial(n, probs=probs, validate_args=False)
        expected = (binomial.log_prob(values).exp() * (values + 1).lgamma()).sum((0, -1))
        total = (values[-1] + 1).lgamma().sum() if n else probs.sum() * 0
        return n * self._categorical.entropy() - total + expected


class Poisson(Distribution):
    """The Poisson distribution, of the number of events in a time.

    Args:
        rate: the mean, not negative.
        validate_args: as in :class:`Distribution`.

    Raises:
        ArgumentError: the rate is negative.

    Example:
        >>> import dl4all as dl
        >>> dl.distributions.Poisson(2.0).variance.item()
        2.0
    """

    support = constraints.nonnegative_integer
    arg_constraints: ClassVar[dict[str, Any]] = {"rate": constraints.nonnegative}

    def __init__(self, rate: Parameter, validate_args: bool | None = None) -> None:
        (self.rate,) = broadcast_all(rate)
        super().__init__(self.rate.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.rate

    @property
    def mode(self) -> Tensor:
        return self.rate.floor()

    @property
    def variance(self) -> Tensor:
        return self.rate

    def sample(self, sample_shape: Any = NO_SHAPE) -> Tensor:
        return poisson_samples(self.rate.detach(), self._extended_shape(sample_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        return ops.xlogy(value, self.rate) - self.rate - (value + 1).lgamma()


class NegativeBinomial(Trial):
    """The distribution of the number of successes before a number of failures.

    Args:
        total_count: the number of failures, not negative; it need not be whole.
        probs: the probability of success, below 1.
        logits: its log-odds, in place of `probs`.
        validate_args: as in :class:`Distribution`.

    Raises:
        ArgumentError: not exactly one of `probs` and `logits` is given, or one is not allowed.

    Example:
        >>> import dl4all as dl
        >>> dl.distributions.NegativeBinomial(3, 0.5).mean.item()
        3.0
    """

    support = constraints.nonnegative_integer
    arg_constraints: ClassVar[dict[str, Any]] = {
        "total_count": constraints.greater_than_eq(0),
        "probs": constraints.half_open_interval(0.0, 1.0),
        "logits": constraints.real,
    }

    def __init__(
        self,
        total_count: Parameter,
        probs: Parameter | None = None,
        logits: Parameter | None = None,
        validate_args: bool | None = None,
    ) -> None:
        given, self.total_count = self._give(probs, logits, total_count)
        super().__init__(given.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.total_count * self.logits.exp()

    @property
    def mode(self) -> Tensor:
        return ((self.total_count - 1) * self.logits.exp()).floor().clamp(min=0.0)

    @property
    def variance(self) -> Tensor:
        return self.mean / (-self.logits).sigmoid()

    def sample(self, sample_shape: Any = NO_SHAPE) -> Tensor:
        shape = self._extended_shape(sample_shape)
        logarithm = log_standard_gamma(self.total_count.detach().expand(*shape)) + self.logits.detach()
        return poisson_samples(logarithm.exp(), shape)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        n, logits = self.total_count, self.logits
        likelihood = -n * log_normalizer(logits) - value * log_normalizer(-logits)
        normalizer = (n + value).lgamma() - (value + 1).lgamma() - n.lgamma()
        return likelihood + normalizer.where(n + value != 0, 0.0)


def poisson_samples(rate: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Poisson numbers with these means."""
    return _drawn(rate, lambda numbers, means: numbers.poisson(means, shape), rate)
