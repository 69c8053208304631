"""Methods that fill a tensor with random numbers of a distribution, on the tensor's own device.

The ops of ``dl4all.ops.random`` draw uniform and normal numbers; other ops transform them.
"""

from __future__ import annotations

import math
from typing import Any, TypeVar

import numpy as np

from dl4all.errors import ArgumentError
from dl4all.ops.core.dtypes import finfo, kind_of
from dl4all.ops.core.tensor_base import TensorBase, from_host
from dl4all.ops.elementwise.rounding import ceil
from dl4all.ops.elementwise.transcendental import exp, log1p, tan
from dl4all.ops.indexing.assignment import copy_
from dl4all.ops.memory.copy import new_like
from dl4all.ops.random.distributions import normal_, uniform_
from dl4all.ops.random.generator import Generator
from dl4all.tensor import host_random

T = TypeVar("T", bound="RandomFills")


class RandomFills(TensorBase):
    """``exponential_``, ``log_normal_``, ``cauchy_``, ``geometric_`` and ``random_``."""

    __slots__ = ()

    def exponential_(self: T, lambd: float = 1.0, *, generator: Generator | None = None) -> T:
        """Fill with exponential random numbers of rate `lambd`; their mean is ``1 / lambd``.

        Raises:
            ArgumentError: the rate is not positive.
            GradientError: the tensor cannot be changed in place.

        Example:
            >>> import dl4all as dl
            >>> bool((dl.empty(100).exponential_() >= 0).all())
            True
        """
        if not lambd > 0:
            raise ArgumentError(f"[exponential_] expected a positive rate, got {lambd}")
        copy_(self, log1p(-_uniform(self, generator)) * (-1 / lambd))
        return self

    def log_normal_(self: T, mean: float = 1.0, std: float = 2.0, *, generator: Generator | None = None) -> T:
        """Fill with random numbers whose logarithms are normal with a mean and a standard deviation.

        Raises:
            ArgumentError: `std` is not positive.
            GradientError: the tensor cannot be changed in place.

        Example:
            >>> import dl4all as dl
            >>> bool((dl.empty(100).log_normal_() > 0).all())
            True
        """
        if not std > 0:
            raise ArgumentError(f"[log_normal_] expected a positive standard deviation, got {std}")
        normal = normal_(new_like(self, self.shape), mean, std, generator=generator)
        copy_(self, exp(normal))
        return self

    def cauchy_(self: T, median: float = 0.0, sigma: float = 1.0, *, generator: Generator | None = None) -> T:
        """Fill with random numbers of a Cauchy distribution.

        Raises:
            ArgumentError: `sigma` is not positive.
            GradientError: the tensor cannot be changed in place.

        Example:
            >>> import dl4all as dl
            >>> dl.empty(3).cauchy_().shape
            (3,)
        """
        if not sigma > 0:
            raise ArgumentError(f"[cauchy_] expected a positive sigma, got {sigma}")
        copy_(self, tan((_uniform(self, generator) - 0.5) * math.pi) * sigma + median)
        return self

    def geometric_(self: T, p: float, *, generator: Generator | None = None) -> T:
        """Fill with how many trials a first success takes, where each succeeds with probability `p`.

        Raises:
            ArgumentError: `p` does not lie between 0 and 1.
            GradientError: the tensor cannot be changed in place.

        Example:
            >>> import dl4all as dl
            >>> bool((dl.empty(100).geometric_(0.5) >= 1).all())
            True
        """
        if not 0 < p < 1:
            raise ArgumentError(f"[geometric_] expected a probability between 0 and 1, got {p}")
        trials = ceil(log1p(-_uniform(self, generator)) / math.log1p(-p))
        copy_(self, trials.clamp(min=1))
        return self

    def random_(
        self: T, from_: int | None = None, to: int | None = None, *, generator: Generator | None = None
    ) -> T:
        """Fill with random whole numbers, uniform in [from_, to), or with one argument in [0, from_).

        Without arguments, up to the largest that the dtype holds exactly.

        Raises:
            ArgumentError: there is no such number, or one does not fit into the dtype.
            GradientError: the tensor cannot be changed in place.

        Example:
            >>> import dl4all as dl
            >>> x = dl.empty(100).random_(3)
            >>> bool(((x >= 0) & (x < 3)).all())
            True
        """
        if from_ is None:
            low, high = 0, _default_end(self.dtype) if to is None else to
        else:
            low, high = (0, from_) if to is None else (from_, to)
        numbers = host_random.integers(low, high, self.shape, self.dtype, generator)
        copy_(self, from_host(type(self).result_class, numbers, self.device, copy=False))
        return self


def _uniform(tensor: TensorBase, generator: Generator | None) -> Any:
    """A tensor of the same shape with numbers in [0, 1): of its dtype if it is one of floats, or float32."""
    dtype = tensor.dtype if kind_of(tensor.dtype) == "f" else np.dtype(np.float32)
    return uniform_(new_like(tensor, tensor.shape, dtype), generator=generator)


def _default_end(dtype: np.dtype[Any]) -> int:
    """The excluded end of ``random_`` without arguments."""
    if kind_of(dtype) == "b":
        return 2
    return 2 ** finfo(dtype).nmant if kind_of(dtype) == "f" else int(np.iinfo(dtype).max)
