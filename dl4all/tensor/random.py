"""Random tensors and the state of the default generator; the same numbers on every device."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from dl4all.errors import ArgumentError
from dl4all.ops.core.arguments import named_cpu
from dl4all.ops.core.dtypes import HALVES, checked_dtype
from dl4all.ops.core.memory_format import MemoryFormat
from dl4all.ops.core.op import empty as empty_tensor
from dl4all.ops.core.tensor_base import DTypeLike, Shape, from_host
from dl4all.ops.elementwise.declare import broadcast_shapes
from dl4all.ops.random.distributions import bernoulli_, normal_, uniform_
from dl4all.ops.random.generator import Generator, State, default_generator
from dl4all.scheduler.device.current import device as open_device
from dl4all.tensor import host_random
from dl4all.tensor.arguments import DeviceLike, checked_shape, float_dtype
from dl4all.tensor.creation import empty, empty_like
from dl4all.tensor.tensor import Tensor

__all__ = [
    "bernoulli",
    "binomial",
    "get_rng_state",
    "initial_seed",
    "manual_seed",
    "multinomial",
    "normal",
    "poisson",
    "rand",
    "rand_like",
    "randint",
    "randint_like",
    "randn",
    "randn_like",
    "randperm",
    "seed",
    "set_rng_state",
]

# The default generator


def manual_seed(seed: int) -> Generator:
    """Restart the default generator from a seed; returns the generator.

    Raises:
        ArgumentError: the seed is not an int from 0 to 2^64 - 1.

    Example:
        >>> import dl4all as dl
        >>> generator = dl.manual_seed(0)
        >>> first = dl.rand(3)
        >>> generator = dl.manual_seed(0)
        >>> bool((dl.rand(3) == first).all())
        True
    """
    return default_generator().manual_seed(seed)


def initial_seed() -> int:
    """The present seed of the default generator.

    Example:
        >>> import dl4all as dl
        >>> generator = dl.manual_seed(7)
        >>> dl.initial_seed()
        7
    """
    return default_generator().initial_seed()


def seed() -> int:
    """Restart the default generator from an unpredictable seed; returns the seed.

    Example:
        >>> import dl4all as dl
        >>> dl.seed() == dl.initial_seed()
        True
    """
    return default_generator().seed()


def get_rng_state() -> State:
    """The state of the default generator: its seed and its counter, two ints that can be saved.

    Example:
        >>> import dl4all as dl
        >>> state = dl.get_rng_state()
        >>> first = dl.rand(3)
        >>> dl.set_rng_state(state)
        >>> bool((dl.rand(3) == first).all())
        True
    """
    return default_generator().get_state()


def set_rng_state(state: State) -> None:
    """Return the default generator to a state of :func:`get_rng_state`.

    Raises:
        ArgumentError: `state` is no such state.

    Example:
        >>> import dl4all as dl
        >>> state = dl.get_rng_state()
        >>> first = dl.rand(2).tolist()
        >>> dl.set_rng_state(state)
        >>> dl.rand(2).tolist() == first
        True
    """
    default_generator().set_state(state)


# Random tensors


def rand(
    *shape: int | Shape,
    dtype: DTypeLike = None,
    device: DeviceLike | None = "auto",
    generator: Generator | None = None,
    requires_grad: bool = False,
    size: Shape | None = None,
) -> Tensor:
    """Random numbers, uniform in [0, 1); the same on every device for the same seed.

    Example:
        >>> import dl4all as dl
        >>> x = dl.rand(2, 3)
        >>> x.shape, bool(((x >= 0) & (x < 1)).all())
        ((2, 3), True)
    """
    wanted = checked_shape("rand", shape, size)
    result = uniform_(empty(wanted, dtype=dtype, device=device), generator=generator)
    return result.requires_grad_() if requires_grad else result


def randn(
    *shape: int | Shape,
    dtype: DTypeLike = None,
    device: DeviceLike | None = "auto",
    generator: Generator | None = None,
    requires_grad: bool = False,
    size: Shape | None = None,
) -> Tensor:
    """Random numbers, normal with mean 0 and variance 1; the same on every device for the same seed.

    Example:
        >>> import dl4all as dl
        >>> dl.randn(2, 3).shape
        (2, 3)
    """
    wanted = checked_shape("randn", shape, size)
    result = normal_(empty(wanted, dtype=dtype, device=device), generator=generator)
    return result.requires_grad_() if requires_grad else result


def rand_like(
    input: Tensor,
    dtype: DTypeLike = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
    memory_format: MemoryFormat = None,
) -> Tensor:
    """Random numbers, uniform in [0, 1), of the same shape, dtype and device.

    Example:
        >>> import dl4all as dl
        >>> dl.rand_like(dl.zeros(2, 3)).shape
        (2, 3)
    """
    result = uniform_(empty_like(input, dtype, device, memory_format=memory_format))
    return result.requires_grad_() if requires_grad else result


def randn_like(
    input: Tensor,
    dtype: DTypeLike = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
    memory_format: MemoryFormat = None,
) -> Tensor:
    """Random numbers, normal with mean 0 and variance 1, of the same shape, dtype and device.

    Example:
        >>> import dl4all as dl
        >>> dl.randn_like(dl.zeros(2, 3)).shape
        (2, 3)
    """
    result = normal_(empty_like(input, dtype, device, memory_format=memory_format))
    return result.requires_grad_() if requires_grad else result


def uniform(shape: Shape, low: float, high: float) -> npt.NDArray[np.float32]:
    """Random float32 numbers on the host, uniform in [low, high), from the default generator."""
    return uniform_(empty(shape, device="cpu"), low, high).numpy()


def normal(
    mean: float | Tensor = 0.0,
    std: float | Tensor = 1.0,
    size: Shape | None = None,
    *,
    generator: Generator | None = None,
    device: DeviceLike | None = "auto",
    dtype: DTypeLike = None,
    requires_grad: bool = False,
) -> Tensor:
    """Random numbers, normal with a mean and a standard deviation.

    Args:
        mean, std: numbers, or tensors with one for each element, which broadcast.
        size: the shape, where both are numbers.
        generator: where the random numbers come from.
        device, dtype: those of the result, if both are numbers.
        requires_grad: whether the result is a leaf that requires gradients, if both are numbers.

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
    if not isinstance(mean, Tensor) and not isinstance(std, Tensor):
        shape = checked_shape("normal", (size,))
        result: Tensor = empty_tensor(Tensor, shape, float_dtype(dtype), open_device(device or "auto"))
        named_cpu.note(result, device)
        normal_(result, mean, std, generator=generator)
        return result.requires_grad_() if requires_grad else result
    shape = broadcast_shapes("normal", tensors)
    unscaled: Tensor = empty_tensor(Tensor, shape, np.dtype(np.float32), tensors[0].device)
    drawn = normal_(unscaled, generator=generator) * std + mean
    return drawn.to(tensors[0].dtype) if tensors[0].dtype in HALVES else drawn


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
    result: Tensor = empty_tensor(Tensor, input.shape, input.dtype, input.device)
    return bernoulli_(result, input if p is None else p, generator=generator)


def randint(
    low: int | None = None,
    high: int | Shape | None = None,
    size: Shape | None = None,
    *,
    dtype: DTypeLike = None,
    generator: Generator | None = None,
    device: DeviceLike | None = "auto",
    requires_grad: bool = False,
) -> Tensor:
    """Random whole numbers, uniform in [low, high); ``randint(high, size)`` starts from 0.

    Args:
        low, high: the limits.
        size: the shape.
        dtype: int64 unless another is named.
        generator: where the random numbers come from.
        device: the device of the result.
        requires_grad: of floats, whether the result is a leaf that requires gradients.

    Raises:
        ArgumentError: the size is missing, `low` is not smaller than `high`, or the numbers do not fit into
            the dtype.

    Example:
        >>> import dl4all as dl
        >>> dl.randint(3, 4, (2, 2)).tolist(), dl.randint(1, size=(2,)).tolist()
        ([[3, 3], [3, 3]], [0, 0])
    """
    if size is None and low is not None:
        low, high, size = 0, low, high  # type: ignore[assignment]
    elif high is None:
        low, high = 0, low
    if size is None:
        raise ArgumentError("[randint] the size is missing: randint(high, size) or randint(low, high, size)")
    result_dtype = "int64" if dtype is None else dtype
    start = 0 if low is None else low
    numbers = host_random.integers(start, high, size, result_dtype, generator)  # type: ignore[arg-type]
    result = _from_array(numbers, device)
    return result.requires_grad_() if requires_grad else result


def randint_like(
    input: Tensor,
    low: int,
    high: int | None = None,
    *,
    dtype: DTypeLike = None,
    generator: Generator | None = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Random whole numbers of a tensor's shape, dtype and device, uniform in [low, high), or in [0, low).

    Raises:
        ArgumentError: `low` is not smaller than `high`, or the numbers do not fit into the dtype.

    Example:
        >>> import dl4all as dl
        >>> dl.randint_like(dl.zeros(2, 2), 3, 4).tolist()
        [[3.0, 3.0], [3.0, 3.0]]
    """
    start, end = (0, low) if high is None else (low, high)
    result_dtype = input.dtype if dtype is None else checked_dtype("tensor", dtype)
    target = input.device if device is None else device
    result = randint(start, end, input.shape, dtype=result_dtype, generator=generator, device=target)
    return result.requires_grad_() if requires_grad else result


def randperm(
    n: int,
    *,
    dtype: DTypeLike = "int64",
    generator: Generator | None = None,
    device: DeviceLike | None = "auto",
) -> Tensor:
    """The numbers from 0 to ``n - 1`` in random order.

    Raises:
        ArgumentError: `n` is negative, or the numbers do not fit into the dtype.

    Example:
        >>> import dl4all as dl
        >>> sorted(dl.randperm(5).tolist())
        [0, 1, 2, 3, 4]
    """
    return _from_array(host_random.permutation(n, dtype, generator), device)


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
    return _from_array(host_random.weighted_indices(input, num_samples, replacement, generator), input.device)


def poisson(input: Tensor, generator: Generator | None = None) -> Tensor:
    """Poisson numbers; each element of the input is the mean of one.

    Args:
        input: means of at least 0, as floats.
        generator: where the random numbers come from.

    Returns:
        The input's shape and dtype.

    Raises:
        ArgumentError: a mean is negative or nan.
        DTypeError: the input is not of floats.

    Example:
        >>> import dl4all as dl
        >>> dl.poisson(dl.tensor([0.0, 0.0])).tolist()
        [0.0, 0.0]
    """
    return _from_array(host_random.counts("poisson", generator, input), input.device)


def binomial(count: Tensor, prob: Tensor, generator: Generator | None = None) -> Tensor:
    """Numbers of successes in independent trials; the shapes broadcast.

    Args:
        count: how many trials, whole numbers as floats.
        prob: the probabilities of success, of the same dtype.
        generator: where the random numbers come from.

    Returns:
        The broadcast shape, in the dtype of `count`.

    Raises:
        ArgumentError: a number of trials is negative, or a probability outside [0, 1].
        DTypeError: the operands are not of floats of one dtype.

    Example:
        >>> import dl4all as dl
        >>> dl.binomial(dl.tensor([5.0, 5.0]), dl.tensor([0.0, 1.0])).tolist()
        [0.0, 5.0]
    """
    return _from_array(host_random.counts("binomial", generator, count, prob), count.device)


def _from_array(array: npt.NDArray[Any], device: DeviceLike | None) -> Tensor:
    result: Tensor = from_host(Tensor, array, open_device(device or "auto"), copy=False)
    named_cpu.note(result, device)
    return result
