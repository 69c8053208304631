"""Methods that fill a tensor: with random numbers of further distributions, and along its diagonal.

The numbers are made of uniform ones on the tensor's device, by ops.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dl4all.errors import ArgumentError, ShapeError
from dl4all.ops.core.tensor_base import TensorBase
from dl4all.ops.elementwise.rounding import ceil
from dl4all.ops.elementwise.transcendental import exp, log1p, tan
from dl4all.ops.indexing.assignment import copy_, setitem
from dl4all.ops.memory.copy import new_like
from dl4all.ops.random import distributions
from dl4all.ops.random.generator import Generator


def _uniform(self: TensorBase, generator: Generator | None) -> Any:
    """Numbers in [0, 1) of the tensor's shape."""
    kind = self.dtype if self.dtype.kind == "f" else np.dtype(np.float32)
    made = new_like(self, self.shape, kind)
    return distributions.uniform_(made, generator=generator)


def exponential_(self: Any, lambd: float = 1.0, *, generator: Generator | None = None) -> Any:
    """Fill with random numbers, exponential with a rate: their mean is ``1 / lambd``.

    Raises:
        ArgumentError: the rate is not positive.
        GradientError: the tensor cannot be changed in place.
    """
    if not lambd > 0:
        raise ArgumentError(f"[exponential_] expected a positive rate, got {lambd}")
    return copy_(self, log1p(-_uniform(self, generator)) * (-1 / lambd))


def log_normal_(self: Any, mean: float = 1.0, std: float = 2.0, *, generator: Generator | None = None) -> Any:
    """Fill with random numbers whose logarithms are normal with a mean and a standard deviation.

    Raises:
        ArgumentError: `std` is not positive.
        GradientError: the tensor cannot be changed in place.
    """
    if not std > 0:
        raise ArgumentError(f"[log_normal_] expected a positive standard deviation, got {std}")
    made = new_like(self, self.shape)
    return copy_(self, exp(distributions.normal_(made, mean, std, generator=generator)))


def cauchy_(self: Any, median: float = 0.0, sigma: float = 1.0, *, generator: Generator | None = None) -> Any:
    """Fill with random numbers of a Cauchy distribution.

    Raises:
        ArgumentError: `sigma` is not positive.
        GradientError: the tensor cannot be changed in place.
    """
    if not sigma > 0:
        raise ArgumentError(f"[cauchy_] expected a positive sigma, got {sigma}")
    return copy_(self, tan((_uniform(self, generator) - 0.5) * math.pi) * sigma + median)


def geometric_(self: Any, p: float, *, generator: Generator | None = None) -> Any:
    """Fill with random numbers of trials up to the first success, each with a probability of `p`.

    Raises:
        ArgumentError: `p` does not lie between 0 and 1.
        GradientError: the tensor cannot be changed in place.
    """
    if not 0 < p < 1:
        raise ArgumentError(f"[geometric_] expected a probability between 0 and 1, got {p}")
    trials = ceil(log1p(-_uniform(self, generator)) / math.log1p(-p))
    return copy_(self, trials.clamp(min=1))


def random_(
    self: Any, from_: int | None = None, to: int | None = None, *, generator: Generator | None = None
) -> Any:
    """Fill with random whole numbers, uniform in [from_, to), or with one argument in [0, from_).

    Without any, up to the largest that the dtype holds exactly.

    Raises:
        ArgumentError: there is no such number, or one does not fit into the dtype.
        GradientError: the tensor cannot be changed in place.
    """
    from dl4all.tensor.random import randint

    if from_ is None:
        low, high = 0, _most(self.dtype) if to is None else to
    else:
        low, high = (0, from_) if to is None else (from_, to)
    numbers = randint(low, high, self.shape, dtype=self.dtype, generator=generator, device=self.device)
    return copy_(self, numbers)


def _most(dtype: np.dtype[Any]) -> int:
    if dtype.kind == "b":
        return 2
    return 2 ** np.finfo(dtype).nmant if dtype.kind == "f" else int(np.iinfo(dtype).max)


def fill_diagonal_(self: Any, fill_value: float, wrap: bool = False) -> Any:
    """Write a number over the main diagonal of a matrix, or of more axes of one size.

    Args:
        self: the tensor that changes.
        fill_value: the number.
        wrap: of a matrix with more rows than columns, begin anew below the diagonal's end.

    Raises:
        ShapeError: there are less than two axes, or more and they differ in size.
        GradientError: the tensor cannot be changed in place.
    """
    shape = self.shape
    if len(shape) < 2 or (len(shape) > 2 and len(set(shape)) > 1):
        raise ShapeError(f"[fill_diagonal_] expected a matrix, or axes of one size, got shape {shape}")
    if wrap and len(shape) == 2:
        places = np.arange(0, shape[0] * shape[1], shape[1] + 1)
        rows, columns = places // shape[1], places % shape[1]
        setitem(self, (rows, columns), fill_value)
    else:
        line = np.arange(min(shape))
        setitem(self, (line,) * len(shape), fill_value)
    return self


def bernoulli(self: Any, p: float | None = None, *, generator: Generator | None = None) -> Any:
    """Ones and zeros: a one with a probability of each element, or of `p`."""
    made = new_like(self, self.shape)
    return distributions.bernoulli_(made, self if p is None else p, generator=generator)


def multinomial(
    self: Any, num_samples: int, replacement: bool = False, *, generator: Generator | None = None
) -> Any:
    """Places along the last axis, drawn with its elements as weights: :func:`dl4all.multinomial`."""
    from dl4all.tensor.random import multinomial as draw

    return draw(self, num_samples, replacement, generator=generator)
