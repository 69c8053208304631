"""The base class of distributions."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np

from dl4all.autograd import no_grad
from dl4all.distributions import constraints
from dl4all.distributions.constraints import Constraint
from dl4all.errors import ArgumentError, ShapeError
from dl4all.ops.core.dtypes import finfo, kind_of
from dl4all.ops.core.tensor_base import Size, TensorBase
from dl4all.tensor.creation import tensor
from dl4all.tensor.tensor import Tensor

R = TypeVar("R")
Number = float | int
Parameter = Number | Tensor
NO_SHAPE = Size(())


class Distribution:
    """Base class of distributions, with PyTorch's interface.

    A distribution stands for a batch of independent ones: ``batch_shape`` is their arrangement, and
    ``event_shape`` the shape of one sample of one of them.

    Args:
        batch_shape, event_shape: these shapes.
        validate_args: check parameters and values that are given; by default as set by
            :meth:`set_default_validate_args`. Checks wait for the device.

    Raises:
        ArgumentError: a parameter is not allowed.

    Example:
        >>> import dl4all as dl
        >>> normal = dl.distributions.Normal(0.0, 1.0)
        >>> isinstance(normal, dl.distributions.Distribution), normal.mean.item()
        (True, 0.0)
    """

    has_rsample = False
    has_enumerate_support = False
    _validate_args = __debug__
    arg_constraints: ClassVar[dict[str, Constraint]] = {}

    def __init__(
        self,
        batch_shape: tuple[int, ...] = NO_SHAPE,
        event_shape: tuple[int, ...] = NO_SHAPE,
        validate_args: bool | None = None,
    ) -> None:
        self._batch_shape, self._event_shape = Size(batch_shape), Size(event_shape)
        if validate_args is not None:
            self._validate_args = validate_args
        if self._validate_args:
            for name, constraint in self.arg_constraints.items():
                if name in vars(self) and not constraints.is_dependent(constraint):
                    self._check(name, constraint, getattr(self, name))

    @staticmethod
    def set_default_validate_args(value: bool) -> None:
        """Set whether distributions check their arguments by default."""
        Distribution._validate_args = bool(value)

    def _check(self, name: str, constraint: Constraint, value: Any) -> None:
        """
        Raises:
            ArgumentError: a value is not within a constraint.
        """
        if not constraint.allows(value):
            raise ArgumentError(
                f"[{type(self).__name__}] expected {name} of shape {tuple(value.shape)} to satisfy the "
                f"constraint {constraint}, but found invalid values: {value.tolist()!s:.200}"
            )

    def _validate_sample(self, value: Any) -> None:
        """Raise unless a value may be a sample.

        Raises:
            ArgumentError, ShapeError
        """
        if not isinstance(value, TensorBase):
            raise ArgumentError(f"[{type(self).__name__}] expected a tensor, got {type(value).__name__}")
        events = len(self._event_shape)
        if value.shape[len(value.shape) - events :] != tuple(self._event_shape):
            raise ShapeError(
                f"[{type(self).__name__}] expected a value that ends in the event shape "
                f"{tuple(self._event_shape)}, got {value.shape}"
            )
        expected = (*self._batch_shape, *self._event_shape)
        for size, other in zip(value.shape[::-1], expected[::-1], strict=False):
            if size != 1 and other != 1 and size != other:
                raise ShapeError(
                    f"[{type(self).__name__}] a value of shape {value.shape} does not broadcast with "
                    f"batch and event shape {expected}"
                )
        if not constraints.is_dependent(self.support):
            self._check("value", self.support, value)

    # Shapes

    @property
    def batch_shape(self) -> Size:
        """The arrangement of the distributions."""
        return self._batch_shape

    @property
    def event_shape(self) -> Size:
        """The shape of one sample."""
        return self._event_shape

    def _extended_shape(self, sample_shape: Any = NO_SHAPE) -> Size:
        return Size((*sample_shape, *self._batch_shape, *self._event_shape))

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        """The distribution with a larger batch; its parameters are views."""
        expanded = copy.copy(self)
        for name, constraint in self.arg_constraints.items():
            if name in vars(self):
                value = vars(self)[name]
                own = value.shape[value.ndim - constraint.event_dim :]
                setattr(expanded, name, value.expand(*batch_shape, *own))
        expanded._batch_shape = Size(batch_shape)
        return expanded

    # Defined by subclasses

    @property
    def support(self) -> Constraint:
        """The set of possible samples."""
        raise NotImplementedError(f"[{type(self).__name__}] has no support")

    @property
    def mean(self) -> Tensor:
        """The mean."""
        raise NotImplementedError(f"[{type(self).__name__}] has no mean")

    @property
    def mode(self) -> Tensor:
        """The most probable value."""
        raise NotImplementedError(f"[{type(self).__name__}] has no mode")

    @property
    def variance(self) -> Tensor:
        """The variance."""
        raise NotImplementedError(f"[{type(self).__name__}] has no variance")

    @property
    def stddev(self) -> Tensor:
        """The standard deviation."""
        return self.variance.sqrt()

    def sample(self, sample_shape: Any = NO_SHAPE) -> Tensor:
        """Samples of shape ``sample_shape + batch_shape + event_shape``, without gradients."""
        with no_grad():
            return self.rsample(sample_shape)

    def rsample(self, sample_shape: Any = NO_SHAPE) -> Tensor:
        """Samples through which gradients flow to the parameters."""
        raise NotImplementedError(
            f"[{type(self).__name__}] no gradients flow through its samples; use sample() and log_prob()"
        )

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the density, or of the probability, at a value."""
        raise NotImplementedError(f"[{type(self).__name__}] has no log_prob")

    def cdf(self, value: Tensor) -> Tensor:
        """The probability of samples up to a value."""
        raise NotImplementedError(f"[{type(self).__name__}] has no cdf")

    def icdf(self, value: Tensor) -> Tensor:
        """The value up to which samples have a probability."""
        raise NotImplementedError(f"[{type(self).__name__}] has no icdf")

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """All possible samples, along a first axis; with `expand` for each distribution of the batch."""
        raise NotImplementedError(f"[{type(self).__name__}] has no support that can be enumerated")

    def entropy(self) -> Tensor:
        """The entropy of each distribution of the batch."""
        raise NotImplementedError(f"[{type(self).__name__}] has no entropy")

    def perplexity(self) -> Tensor:
        """The exponential of the entropy."""
        return self.entropy().exp()

    def __repr__(self) -> str:
        names = [name for name in self.arg_constraints if name in vars(self)]
        shown = [
            f"{name}: {vars(self)[name].item() if vars(self)[name].numel() == 1 else vars(self)[name].shape}"
            for name in names
        ]
        return f"{type(self).__name__}({', '.join(shown)})"


class lazy_property(Generic[R]):
    """A property that is computed when it is first read, and kept."""

    def __init__(self, function: Callable[[Any], R]) -> None:
        self.function = function
        self.__doc__ = function.__doc__

    def __get__(self, instance: Any, owner: Any = None) -> R:
        if instance is None:
            return self  # type: ignore[return-value]
        value = self.function(instance)
        vars(instance)[self.function.__name__] = value
        return value


def broadcast_all(*values: Any) -> list[Tensor]:
    """Numbers and tensors as tensors of floats of the same shape, dtype and device.

    Raises:
        ArgumentError: one is neither a number nor a tensor.
    """
    for value in values:
        if not isinstance(value, (TensorBase, float, int)):
            raise ArgumentError(f"[distributions] expected a number or a tensor, got {type(value).__name__}")
    like = next((value for value in values if isinstance(value, TensorBase)), None)
    device = None if like is None else like.device
    floats = next((v.dtype for v in values if isinstance(v, TensorBase) and kind_of(v.dtype) == "f"), None)
    tensors: list[Any] = [
        _as_floats(value, floats)
        if isinstance(value, TensorBase)
        else tensor(float(value), dtype=floats, device=device or "auto")
        for value in values
    ]
    shape = np.broadcast_shapes(*(one.shape for one in tensors))
    return [one if one.shape == shape else one.expand(*shape) for one in tensors]


def _as_floats(value: Any, dtype: Any) -> Any:
    return value if kind_of(value.dtype) == "f" else value.to("float32" if dtype is None else dtype)


def standard_normal(shape: tuple[int, ...], like: Tensor) -> Tensor:
    """Normal numbers with the dtype and on the device of a tensor."""
    return like.new_empty(shape).normal_()


def uniform(shape: tuple[int, ...], like: Tensor) -> Tensor:
    """Uniform numbers in (0, 1): neither 0 nor 1, so that logarithms are finite."""
    smallest, eps = float(finfo_of(like).tiny), float(finfo_of(like).eps)
    return like.new_empty(shape).uniform_().clamp(min=max(smallest, eps / 2), max=1.0 - eps / 2)


def finfo_of(like: Tensor) -> Any:
    return finfo(like.dtype)


def clamp_probs(probs: Tensor) -> Tensor:
    """Probabilities away from 0 and 1 by the dtype's epsilon."""
    eps = float(finfo_of(probs).eps)
    return probs.clamp(min=eps, max=1 - eps)


def logits_to_probs(logits: Tensor, is_binary: bool = False) -> Tensor:
    """Probabilities of logits: log-odds if binary, else logarithms of weights along the last axis."""
    return logits.sigmoid() if is_binary else logits.softmax(-1)


def probs_to_logits(probs: Tensor, is_binary: bool = False) -> Tensor:
    """Logits of probabilities, see :func:`logits_to_probs`."""
    safe = clamp_probs(probs)
    return safe.log() - (-safe).log1p() if is_binary else safe.log()


def sum_rightmost(value: Tensor, dim: int) -> Tensor:
    """The sums over some of the last axes."""
    return value.sum(tuple(range(-dim, 0))) if dim else value
