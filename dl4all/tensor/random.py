"""Random tensors: the same numbers on every device."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import numpy.typing as npt

from dl4all.errors import ArgumentError, DTypeError
from dl4all.ops.core import philox
from dl4all.ops.core.op import empty
from dl4all.ops.core.strides import sizes
from dl4all.ops.core.tensor_base import DTYPES, Shape, from_host
from dl4all.ops.elementwise.declare import broadcast_shapes
from dl4all.ops.random import distributions
from dl4all.ops.random.generator import Generator, State, default_generator
from dl4all.scheduler.current import device
from dl4all.scheduler.device import Device
from dl4all.tensor.tensor import Tensor


def initial_seed() -> int:
    """The seed that random numbers come from at present."""
    return default_generator().initial_seed()


def seed() -> int:
    """Start the random numbers anew from a seed that nobody can foresee; returns it."""
    return default_generator().seed()


def get_rng_state() -> State:
    """Where the random numbers are: two ints, which can be saved."""
    return default_generator().get_state()


def set_rng_state(state: State) -> None:
    """Go on from where :func:`get_rng_state` was called.

    Raises:
        ArgumentError: this is no such state.

    Example:
        >>> import dl4all as dl
        >>> state = dl.get_rng_state()
        >>> first = dl.rand(2).tolist()
        >>> dl.set_rng_state(state)
        >>> dl.rand(2).tolist() == first
        True
    """
    default_generator().set_state(state)


def bernoulli(input: Tensor, p: float | None = None, *, generator: Generator | None = None) -> Tensor:
    """Ones and zeros; each element of the input is the probability of a one.

    Args:
        input: probabilities as floats.
        p: one probability for all, instead of the input's elements.
        generator: where the random numbers come from.

    Returns:
        The input's shape and dtype.

    Raises:
        ArgumentError: `p` is no probability.
        DTypeError: the input is not of floats.

    Example:
        >>> import dl4all as dl
        >>> dl.bernoulli(dl.tensor([0.0, 1.0])).tolist()
        [0.0, 1.0]
    """
    made: Tensor = empty(Tensor, input.shape, input.dtype, input.device)
    return distributions.bernoulli_(made, input if p is None else p, generator=generator)


def normal(
    mean: float | Tensor = 0.0,
    std: float | Tensor = 1.0,
    size: Shape | None = None,
    *,
    generator: Generator | None = None,
    device: str | Device = "auto",
) -> Tensor:
    """Random float32 numbers, normal with a mean and a standard deviation.

    Args:
        mean, std: numbers, or tensors with one for each element, which broadcast.
        size: the shape, where both are numbers.
        generator: where the random numbers come from.
        device: where the result will live, if both are numbers.

    Raises:
        ArgumentError: `std` is negative, or `size` is missing or given beside tensors.

    Example:
        >>> import dl4all as dl
        >>> dl.normal(dl.tensor([1.0, 2.0]), 0.0).tolist()
        [1.0, 2.0]
    """
    tensors = [value for value in (mean, std) if isinstance(value, Tensor)]
    if bool(tensors) == (size is not None):
        raise ArgumentError("[normal] pass the size of numbers, or a tensor of means or deviations")
    if not tensors:
        made = _made("normal", (size,), np.dtype(np.float32), device)
        return distributions.normal_(made, float(mean), float(std), generator=generator)
    shape = broadcast_shapes("normal", tensors)
    made = distributions.normal_(
        empty(Tensor, shape, np.dtype(np.float32), tensors[0].device), generator=generator
    )
    scaled: Tensor = made * std + mean
    return scaled


def randint(
    low: int,
    high: int | Shape | None = None,
    size: Shape | None = None,
    *,
    dtype: npt.DTypeLike = "int64",
    generator: Generator | None = None,
    device: str | Device = "auto",
) -> Tensor:
    """Random whole numbers, uniform in [low, high); ``randint(high, size)`` starts from 0.

    Raises:
        ArgumentError: `low` is not smaller than `high`, or the numbers do not fit into the dtype.

    Example:
        >>> import dl4all as dl
        >>> dl.randint(3, 4, (2, 2)).tolist()
        [[3, 3], [3, 3]]
    """
    if size is None:
        low, high, size = 0, low, high  # type: ignore[assignment]
    try:
        first, end = operator.index(low), operator.index(high)  # type: ignore[arg-type]
    except TypeError:
        raise ArgumentError(f"[randint] expected ints, got {low!r} and {high!r}") from None
    if not first < end:
        raise ArgumentError(f"[randint] expected low < high, got {first} and {end}")
    kind = _dtype("randint", dtype)
    limits = _exact_range(kind)
    if first < limits[0] or end - 1 > limits[1]:
        raise ArgumentError(f"[randint] numbers from {first} to {end - 1} do not fit into {kind}")
    shape = _shape("randint", (size,))
    values = _below(end - first, int(np.prod(shape, dtype=np.int64)), generator)
    # Modulo 2^64, where the sum of a large offset and an unsigned number is right in the end.
    shifted = (values + np.uint64(first % 2**64)).view(np.int64)
    return _placed(shifted.astype(kind).reshape(shape), device)


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
    found: npt.NDArray[np.uint64] = high * count_high + (middle >> half) + (other >> half)
    return found


def _wide_words(
    amount: int, generator: Generator | None
) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]:
    drawn = (default_generator() if generator is None else generator).draw(2 * amount)
    words = philox.random_words(*drawn, 2 * amount).astype(np.uint64)
    return words[::2], words[1::2]


def randperm(
    n: int,
    *,
    dtype: npt.DTypeLike = "int64",
    generator: Generator | None = None,
    device: str | Device = "auto",
) -> Tensor:
    """The numbers from 0 to ``n - 1`` in random order.

    Raises:
        ArgumentError: `n` is negative, or the numbers do not fit into the dtype.

    Example:
        >>> import dl4all as dl
        >>> sorted(dl.randperm(5).tolist())
        [0, 1, 2, 3, 4]
    """
    kind = _dtype("randperm", dtype)
    if n < 0 or n - 1 > _exact_range(kind)[1]:
        raise ArgumentError(f"[randperm] expected a number of at least 0 that fits into {kind}, got {n}")
    low, high = _wide_words(n, generator)
    order = np.argsort(high << np.uint64(32) | low, kind="stable")
    return _placed(order.astype(kind), device)


def multinomial(
    input: Tensor, num_samples: int, replacement: bool = False, *, generator: Generator | None = None
) -> Tensor:
    """Indices drawn with the weights in each row of the input.

    Args:
        input: weights as floats of at least 0, of shape (n,) or (rows, n); they need not sum to 1.
        num_samples: how many to draw from each row.
        replacement: whether an index may come again.
        generator: where the random numbers come from.

    Returns:
        int64 of shape (num_samples,) or (rows, num_samples), on the input's device.

    Raises:
        ArgumentError: a weight is negative or not finite, a row has no positive one, or without
            replacement fewer than `num_samples`.
        DTypeError: the input is not of floats.

    Example:
        >>> import dl4all as dl
        >>> dl.multinomial(dl.tensor([[0.0, 3.0], [1.0, 0.0]]), 2, replacement=True).tolist()
        [[1, 1], [0, 0]]
    """
    if input.dtype.kind != "f":
        raise DTypeError(f"[multinomial] expected weights as floats, got {input.dtype}")
    if input.ndim not in (1, 2) or num_samples < 1:
        raise ArgumentError(
            f"[multinomial] expected weights of shape (n,) or (rows, n) and at least one sample, "
            f"got {input.shape} and {num_samples}"
        )
    weights = np.atleast_2d(input.numpy()).astype(np.float64)
    if not (np.isfinite(weights).all() and (weights >= 0).all()):
        raise ArgumentError("[multinomial] weights must be finite and at least 0")
    available = (weights > 0).sum(-1).min(initial=weights.shape[-1])
    needed = 1 if replacement else num_samples
    if available < needed:
        raise ArgumentError(f"[multinomial] a row has {available} positive weights, {needed} are needed")
    rows, n = weights.shape
    drawn = _unit(rows * (num_samples if replacement else n), generator).reshape(rows, -1)
    if replacement:
        sums = weights.cumsum(-1)
        found = np.empty((rows, num_samples), np.int64)
        for row in range(rows):
            # "right" passes over weights of 0; the last positive weight ends where the sum is reached.
            places = np.searchsorted(sums[row], drawn[row] * sums[row, -1], side="right")
            found[row] = np.minimum(places, np.flatnonzero(weights[row])[-1])
    else:
        # The first arrivals of independent exponential clocks with these rates.
        with np.errstate(divide="ignore"):
            arrivals = -np.log1p(-drawn) / weights
        arrivals[weights == 0] = np.inf
        found = np.argsort(arrivals, axis=-1, kind="stable")[:, :num_samples]
    made: Tensor = from_host(
        Tensor, found.reshape(*input.shape[:-1], num_samples).astype(np.int64), input.device, copy=False
    )
    return made


def _unit(amount: int, generator: Generator | None) -> npt.NDArray[np.float64]:
    drawn = (default_generator() if generator is None else generator).draw(2 * amount)
    return distributions.unit_numbers(*drawn, amount, np.float64)


def _exact_range(dtype: np.dtype[Any]) -> tuple[int, int]:
    """The whole numbers that a dtype holds, each exactly."""
    if dtype.kind == "f":
        most = 2 ** (np.finfo(dtype).nmant + 1)
        return -most, most
    if dtype.kind == "b":
        return 0, 1
    return int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)


def _dtype(name: str, wanted: npt.DTypeLike) -> np.dtype[Any]:
    dtype = np.dtype(wanted)
    if dtype not in DTYPES:
        raise DTypeError(f"[{name}] dtype {dtype} is not supported; use one of {', '.join(map(str, DTYPES))}")
    return dtype


def _shape(name: str, given: tuple[Any, ...]) -> Shape:
    shape = sizes(name, given)
    if min(shape, default=0) < 0:
        raise ArgumentError(f"[{name}] sizes must be at least 0, got {shape}")
    return shape


def _made(name: str, size: tuple[Any, ...], dtype: np.dtype[Any], place: str | Device) -> Tensor:
    made: Tensor = empty(Tensor, _shape(name, size), dtype, device(place))
    return made


def _placed(array: npt.NDArray[Any], place: str | Device) -> Tensor:
    made: Tensor = from_host(Tensor, array, device(place), copy=False)
    return made
