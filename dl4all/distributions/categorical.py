"""Distributions of one of several classes, as an index or as a one-hot vector."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from dl4all.distributions import constraints
from dl4all.distributions.constraints import Constraint
from dl4all.distributions.distribution import (
    NO_SHAPE,
    Distribution,
    finfo_of,
    lazy_property,
    logits_to_probs,
    probs_to_logits,
)
from dl4all.errors import ArgumentError
from dl4all.ops.core.tensor_base import Size
from dl4all.tensor.random import multinomial
from dl4all.tensor.ranges import arange, eye
from dl4all.tensor.tensor import Tensor

WEIGHTS = Constraint(
    "Weights()",
    lambda value: (value >= 0).all(-1) & (value.sum(-1) > 0),
    event_dim=1,
    takes_arrays=True,
)


class Categorical(Distribution):
    """The distribution of an index from 0 on with given probabilities.

    Args:
        probs: of shape (..., n), not negative; they are divided by their sum.
        logits: logarithms of such weights, in place of `probs`.
        validate_args: as in :class:`Distribution`.

    Raises:
        ArgumentError: not exactly one of `probs` and `logits` is given, or one is not allowed.

    Example:
        >>> import dl4all as dl
        >>> categorical = dl.distributions.Categorical(dl.tensor([1.0, 3.0]))
        >>> categorical.probs.tolist()
        [0.25, 0.75]
        >>> action = categorical.sample()
        >>> categorical.log_prob(action).shape
        ()
    """

    has_enumerate_support = True
    arg_constraints: ClassVar[dict[str, Any]] = {
        "probs": constraints.simplex,
        "logits": constraints.real_vector,
    }

    def __init__(
        self,
        probs: Tensor | None = None,
        logits: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        weights = given_one(self, probs, logits)
        if weights.ndim < 1:
            raise ArgumentError(f"[{type(self).__name__}] expected probs or logits with at least one axis")
        if probs is not None:
            check_weights(self, probs, validate_args)
            vars(self)["probs"] = probs / probs.sum(-1, keepdim=True)
        else:
            vars(self)["logits"] = weights - weights.logsumexp(-1, keepdim=True)
        self._num_events = weights.shape[-1]
        super().__init__(weights.shape[:-1], validate_args=validate_args)

    @lazy_property
    def logits(self) -> Tensor:
        """The logarithms of the probabilities."""
        return probs_to_logits(self.probs)

    @lazy_property
    def probs(self) -> Tensor:
        """The probabilities."""
        return logits_to_probs(self.logits)

    @property
    def param_shape(self) -> Size:
        """The shape of the probabilities."""
        return Size(self.param.shape)

    @property
    def support(self) -> Constraint:
        return constraints.integer_interval(0, self._num_events - 1)

    @property
    def mean(self) -> Tensor:
        return self.probs.sum(-1) * float("nan")

    @property
    def mode(self) -> Tensor:
        return self.probs.argmax(-1)

    @property
    def variance(self) -> Tensor:
        return self.probs.sum(-1) * float("nan")

    def sample(self, sample_shape: Any = NO_SHAPE) -> Tensor:
        shape = self._extended_shape(sample_shape)
        rows = self.probs.detach().reshape(-1, self._num_events)
        count = Size(sample_shape).numel()
        if not shape.numel():
            return rows.new_empty(shape, dtype="int64")
        drawn = multinomial(rows, count, replacement=True)
        return drawn.T.reshape(shape)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        indices = value.to("int64").unsqueeze(-1)
        shape = np.broadcast_shapes(indices.shape[:-1], self.logits.shape[:-1])
        logits = self.logits.expand(*shape, self._num_events)
        return logits.gather(-1, indices.expand(*shape, 1)).squeeze(-1)

    def entropy(self) -> Tensor:
        smallest = float(finfo_of(self.logits).min)
        return -(self.logits.clamp(min=smallest) * self.probs).sum(-1)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        values = arange(self._num_events, device=self.param.device)
        values = values.reshape(-1, *[1] * len(self._batch_shape))
        return values.expand(-1, *self._batch_shape) if expand else values

    @property
    def param(self) -> Tensor:
        """The parameter that was given: probabilities or logits."""
        found: Tensor = vars(self)["probs" if "probs" in vars(self) else "logits"]
        return found


class OneHotCategorical(Distribution):
    """The distribution of a one-hot vector with given probabilities.

    Args:
        probs, logits, validate_args: as in :class:`Categorical`.

    Raises:
        ArgumentError: as in :class:`Categorical`.

    Example:
        >>> import dl4all as dl
        >>> dl.distributions.OneHotCategorical(dl.tensor([0.0, 1.0])).sample().tolist()
        [0.0, 1.0]
    """

    has_enumerate_support = True
    support = constraints.one_hot
    arg_constraints: ClassVar[dict[str, Any]] = Categorical.arg_constraints

    def __init__(
        self,
        probs: Tensor | None = None,
        logits: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        given_one(self, probs, logits)
        self._categorical = Categorical(probs, logits, validate_args)
        events = (self._categorical._num_events,)
        super().__init__(self._categorical.batch_shape, events, validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        expanded = super().expand(batch_shape)
        expanded._categorical = self._categorical.expand(batch_shape)
        return expanded

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
        return self.probs

    @property
    def mode(self) -> Tensor:
        return self._one_hot(self._categorical.mode)

    @property
    def variance(self) -> Tensor:
        result: Tensor = self.probs * (1 - self.probs)
        return result

    def sample(self, sample_shape: Any = NO_SHAPE) -> Tensor:
        return self._one_hot(self._categorical.sample(sample_shape))

    def _one_hot(self, indices: Tensor) -> Tensor:
        zeros = self.probs.new_zeros((*indices.shape, self._categorical._num_events))
        return zeros.scatter(-1, indices.unsqueeze(-1), 1.0)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        return self._categorical.log_prob(value.argmax(-1))

    def entropy(self) -> Tensor:
        return self._categorical.entropy()

    def enumerate_support(self, expand: bool = True) -> Tensor:
        n = self._categorical._num_events
        values = eye(n, dtype=self.probs.dtype, device=self.probs.device)
        values = values.reshape(n, *[1] * len(self._batch_shape), n)
        return values.expand(n, *self._batch_shape, n) if expand else values


class OneHotCategoricalStraightThrough(OneHotCategorical):
    """As :class:`OneHotCategorical`, with samples that have the gradient of the probabilities.

    Bengio et al., arXiv:1308.3432.

    Args:
        probs, logits, validate_args: as in :class:`Categorical`.

    Raises:
        ArgumentError: as in :class:`Categorical`.

    Example:
        >>> import dl4all as dl
        >>> logits = dl.zeros(3).requires_grad_()
        >>> dl.distributions.OneHotCategoricalStraightThrough(logits=logits).rsample().requires_grad
        True
    """

    has_rsample = True

    def rsample(self, sample_shape: Any = NO_SHAPE) -> Tensor:
        probs = self.probs
        return self.sample(sample_shape) + (probs - probs.detach())


def given_one(distribution: Distribution, probs: Any, logits: Any) -> Any:
    """Whichever of probabilities and logits is given.

    Raises:
        ArgumentError: both or neither are.
    """
    if (probs is None) == (logits is None):
        raise ArgumentError(f"[{type(distribution).__name__}] pass either probs or logits")
    return logits if probs is None else probs


def check_weights(distribution: Distribution, probs: Tensor, validate_args: bool | None) -> None:
    """Raise unless weights are not negative and their sums positive; only these tell what was given.

    Raises:
        ArgumentError
    """
    validates = distribution._validate_args if validate_args is None else validate_args
    if validates and not WEIGHTS.allows(probs):
        raise ArgumentError(
            f"[{type(distribution).__name__}] expected probs that are not negative, with positive sums, "
            f"got {probs.tolist()!s:.200}"
        )
