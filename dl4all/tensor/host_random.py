"""Random integers, permutations and weighted choices, computed on the host as NumPy arrays."""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np
import numpy.typing as npt

from dl4all.errors import ArgumentError, DTypeError
from dl4all.functions.host import computed_on_host
from dl4all.ops.core.checks import check_float
from dl4all.ops.core.dtypes import checked_dtype, finfo, kind_of
from dl4all.ops.core.expressions import philox
from dl4all.ops.core.limits import check_shape, host_memory, integer
from dl4all.ops.core.tensor_base import DTypeLike, Shape, TensorBase
from dl4all.ops.random.distributions import unit_numbers
from dl4all.ops.random.generator import Generator, default_generator
from dl4all.tensor.arguments import checked_shape


def integers(
    low: int, high: int, size: Shape, dtype: DTypeLike, generator: Generator | None
) -> npt.NDArray[Any]:
    """Whole numbers, uniform in [low, high); the arguments of :func:`dl4all.randint`.

    Raises:
        ArgumentError: `low` is not smaller than `high`, or the numbers do not fit into the dtype.
    """
    try:
        start, end = operator.index(low), operator.index(high)
    except TypeError:
        raise ArgumentError(f"[randint] expected ints, got {low!r} and {high!r}") from None
    if not start < end:
        raise ArgumentError(f"[randint] expected low < high, got {start} and {end}")
    result_dtype = checked_dtype("randint", dtype)
    smallest, largest = _exact_range(result_dtype)
    if start < smallest or end - 1 > largest:
        raise ArgumentError(f"[randint] numbers from {start} to {end - 1} do not fit into {result_dtype}")
    shape = checked_shape("randint", (size,))
    with host_memory("randint"):
        values = _below(end - start, math.prod(shape), generator)
    # Modulo 2^64, where the sum of a large offset and an unsigned number is right in the end.
    shifted = (values + np.uint64(start % 2**64)).view(np.int64)
    return shifted.astype(result_dtype).reshape(shape)


def permutation(n: int, dtype: DTypeLike, generator: Generator | None) -> npt.NDArray[Any]:
    """The numbers from 0 to ``n - 1`` in random order.

    Raises:
        ArgumentError: `n` is negative, or the numbers do not fit into the dtype.
    """
    result_dtype = checked_dtype("randperm", dtype)
    integer("randperm", "the number", n)
    if n < 0 or n - 1 > _exact_range(result_dtype)[1]:
        raise ArgumentError(
            f"[randperm] expected a number of at least 0 that fits into {result_dtype}, got {n}"
        )
    check_shape("randperm", (n,))
    with host_memory("randperm"):
        low, high = _wide_words(n, generator)
        order = np.argsort(high << np.uint64(32) | low, kind="stable")
        return order.astype(result_dtype)


@computed_on_host("counts")
def counts(kind: str, generator: Generator | None, *parameters: TensorBase) -> npt.NDArray[Any]:
    """Numbers of events, as NumPy draws them, in the first parameter's dtype.

    Args:
        kind: "poisson" or "binomial".
        generator: gives the seed.
        parameters: means; or numbers of trials and probabilities.

    Raises:
        ArgumentError: a parameter is negative, nan, or no probability.
        DTypeError: the parameters are not of floats of one dtype.
    """
    check_float(kind, *parameters)
    arrays = np.broadcast_arrays(*(one.on_host().astype(np.float64) for one in parameters))
    seed, offset = (generator or default_generator()).draw(1)
    numbers = np.random.Generator(np.random.Philox(key=np.uint64(seed), counter=[int(offset), 0, 0, 0]))
    try:
        if kind == "binomial":
            drawn = numbers.binomial(arrays[0].astype(np.int64), arrays[1])
        else:
            drawn = numbers.poisson(arrays[0])
    except ValueError as error:
        raise ArgumentError(f"[{kind}] {error}") from None
    return np.asarray(drawn).astype(parameters[0].dtype)


@computed_on_host("multinomial")
def weighted_indices(
    input: TensorBase, num_samples: int, replacement: bool, generator: Generator | None
) -> npt.NDArray[np.int64]:
    """Indices drawn with the weights in each row; arguments, result and errors of :func:`dl4all.multinomial`.

    Raises:
        ArgumentError, DTypeError
    """
    if kind_of(input.dtype) != "f":
        raise DTypeError(f"[multinomial] expected weights as floats, got {input.dtype}")
    integer("multinomial", "num_samples", num_samples)
    if len(input.shape) not in (1, 2) or num_samples < 1:
        raise ArgumentError(
            f"[multinomial] expected weights of shape (n,) or (rows, n) and at least one sample, "
            f"got {input.shape} and {num_samples}"
        )
    weights = np.atleast_2d(input.on_host()).astype(np.float64)
    if not (np.isfinite(weights).all() and (weights >= 0).all()):
        raise ArgumentError("[multinomial] weights must be finite and at least 0")
    available = (weights > 0).sum(-1).min(initial=weights.shape[-1])
    needed = 1 if replacement else num_samples
    if available < needed:
        raise ArgumentError(f"[multinomial] a row has {available} positive weights, {needed} are needed")
    rows, n = weights.shape
    check_shape("multinomial", (rows, num_samples))
    draws = num_samples if replacement else n
    uniform = _unit_floats(rows * draws, generator).reshape(rows, draws)
    if replacement:
        sums = weights.cumsum(-1)
        indices = np.empty((rows, num_samples), np.int64)
        for row in range(rows):
            # "right" passes over weights of 0; the last positive weight ends where the sum is reached.
            reached = np.searchsorted(sums[row], uniform[row] * sums[row, -1], side="right")
            indices[row] = np.minimum(reached, np.flatnonzero(weights[row])[-1])
    else:
        # The first arrivals of independent exponential clocks with these rates.
        with np.errstate(divide="ignore"):
            arrivals = -np.log1p(-uniform) / weights
        arrivals[weights == 0] = np.inf
        indices = np.argsort(arrivals, axis=-1, kind="stable")[:, :num_samples]
    return indices.reshape(*input.shape[:-1], num_samples).astype(np.int64)


def _below(count: int, amount: int, generator: Generator | None) -> npt.NDArray[np.uint64]:
    """Whole numbers in [0, count): the upper half of its product with 64 random bits.

    Lemire, arXiv:1805.10941, without the rejection that only shows beyond 2^64 / count draws.
    """
    low, high = _wide_words(amount, generator)
    half, mask = np.uint64(32), np.uint64(philox.MASK)
    if count == 2**64:
        return high << half | low
    count_low, count_high = np.uint64(count & philox.MASK), np.uint64(count >> 32)
    middle = high * count_low + (low * count_low >> half)
    other = low * count_high + (middle & mask)
    product_high: npt.NDArray[np.uint64] = high * count_high + (middle >> half) + (other >> half)
    return product_high


def _wide_words(
    amount: int, generator: Generator | None
) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]:
    """The lower and the upper halves of random words of 64 bits."""
    state = (default_generator() if generator is None else generator).draw(2 * amount)
    words = philox.random_words(*state, 2 * amount).astype(np.uint64)
    return words[::2], words[1::2]


def _unit_floats(amount: int, generator: Generator | None) -> npt.NDArray[np.float64]:
    """Numbers in [0, 1) with all the bits that float64 has there."""
    state = (default_generator() if generator is None else generator).draw(2 * amount)
    return unit_numbers(*state, amount, np.float64)


def _exact_range(dtype: np.dtype[Any]) -> tuple[int, int]:
    """The smallest and the largest whole number of the range that a dtype holds exactly."""
    if kind_of(dtype) == "f":
        limit = 2 ** (finfo(dtype).nmant + 1)
        return -limit, limit
    if kind_of(dtype) == "b":
        return 0, 1
    return int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
