"""Random numbers on every device: generators, tensors filled in place, dropout.

A generator is a seed and a counter on the host; :mod:`dl4all.ops.core.philox` says how numbers are made of
them. A draw takes the counters that it needs, and from then on its numbers are known, wherever and
whenever they are computed.
"""

from __future__ import annotations

import contextlib
import secrets
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from dl4all.errors import ArgumentError, DTypeError, GradientError
from dl4all.ops.core import philox, tape
from dl4all.ops.core.checks import check_float
from dl4all.ops.core.exports import export
from dl4all.ops.core.launch import ceil_div, pack, run, shader, strided_grid
from dl4all.ops.core.op import SHARED, Kernel, Result, example, op
from dl4all.ops.core.tensor_base import Array, TensorBase, from_host
from dl4all.ops.core.vmap_hook import BatchedTensorBase
from dl4all.ops.elementwise.arithmetic import mul
from dl4all.ops.elementwise.comparison import gt
from dl4all.ops.elementwise.logic import where
from dl4all.ops.memory.copy import copy_into, fill_with, new_like, overlaps_itself
from dl4all.ops.memory.views import contiguous
from dl4all.ops.vmap.batched_tensor import PerSampleFallback, levels_of, unwrap, wrap
from dl4all.scheduler.device import Device

T = TypeVar("T", bound=TensorBase)
State = tuple[int, int]
NDArray = npt.NDArray[Any]

WORKGROUP = 128
UNIFORM = shader("random/uniform.comp")
NORMAL = shader("random/normal.comp")
BERNOULLI = shader("random/bernoulli.comp")
DROPOUT = shader("random/dropout.comp")
DROPOUT_GROUPS = shader("random/dropout.comp", SHARED=1)
SHARED.extend((UNIFORM, NORMAL, BERNOULLI))


class Generator:
    """A source of random numbers: a seed, and how many were drawn. Any thread may use it.

    Example:
        >>> import dl4all as dl
        >>> generator = dl.Generator(7)
        >>> state = generator.get_state()
        >>> x = dl.rand(3, generator=generator, device="cpu")
        >>> generator.set_state(state)
        >>> dl.rand(3, generator=generator, device="cpu").tolist() == x.tolist()
        True
    """

    def __init__(self, seed: int = 0) -> None:
        self._lock = threading.Lock()
        self.manual_seed(seed)

    def __repr__(self) -> str:
        seed, offset = self.get_state()
        return f"Generator(seed={seed}, offset={offset})"

    def manual_seed(self, seed: int) -> Generator:
        """Start anew from a seed.

        Raises:
            ArgumentError: the seed is not an int from 0 to 2^64 - 1.
        """
        state = _checked_state("manual_seed", (seed, 0))
        with self._lock:
            self._seed, self._offset = state
        return self

    def seed(self) -> int:
        """Start anew from a seed that nobody can foresee; returns it."""
        seed = secrets.randbits(64)
        self.manual_seed(seed)
        return seed

    def initial_seed(self) -> int:
        """The seed that the numbers come from."""
        return self._seed

    def get_state(self) -> State:
        """The seed and the counter: two ints, which can be saved."""
        with self._lock:
            return self._seed, self._offset

    def set_state(self, state: State) -> None:
        """Go on from where :meth:`get_state` was called.

        Raises:
            ArgumentError: this is no such state.
        """
        checked = _checked_state("set_state", state)
        with self._lock:
            self._seed, self._offset = checked

    def draw(self, words: int, *, every_sample: bool = False) -> State:
        """Take the counters for so many words of 32 bits: the seed and the first of them.

        Within ``vmap`` samples have their own numbers: unless `every_sample` has some, they go one by one.
        """
        if tape.state.in_vmap and not every_sample:
            raise PerSampleFallback("draws random numbers for a tensor that all samples share")
        with self._lock:
            offset = self._offset
            self._offset = (offset + ceil_div(words, 4)) % 2**64
            return self._seed, offset


def _checked_state(name: str, state: Any) -> State:
    try:
        seed, offset = state
        numbers = [int(seed), int(offset)] if isinstance(seed, (int, np.integer)) else []
    except (TypeError, ValueError):
        numbers = []
    if len(numbers) != 2:
        raise ArgumentError(f"[{name}] expected ints, got {state!r}")
    if numbers[0] < 0:
        raise ArgumentError(f"[{name}] the seed must not be negative, got {numbers[0]}")
    if max(numbers) >= 2**64 or numbers[1] < 0:
        raise ArgumentError(f"[{name}] expected numbers below 2^64, got {max(numbers)}")
    return numbers[0], numbers[1]


_shared = Generator()


class _Replayed(threading.local):
    generator: Generator | None = None


_replayed = _Replayed()


def default_generator() -> Generator:
    """The generator of everything that is not given one."""
    return _replayed.generator or _shared


@contextlib.contextmanager
def replayed(state: State) -> Iterator[None]:
    """Within, this thread's random numbers come once more from a state of the default generator."""
    again = Generator()
    again.set_state(state)
    before, _replayed.generator = _replayed.generator, again
    try:
        yield
    finally:
        _replayed.generator = before


# Filling tensors


@export("Tensor")
def uniform_(input: T, low: float = 0.0, high: float = 1.0, *, generator: Generator | None = None) -> T:
    """Fill with random numbers, uniform in [low, high).

    Raises:
        ArgumentError: `low` is larger than `high`, or not finite.
        DTypeError: this is no tensor of floats.

    Example:
        >>> import dl4all as dl
        >>> x = dl.zeros(100).uniform_(-1, 1)
        >>> bool(-1 <= x.numpy().min() and x.numpy().max() < 1)
        True
    """
    if not (np.isfinite([low, high]).all() and low <= high):
        raise ArgumentError(f"[uniform_] expected finite numbers low <= high, got {low} and {high}")
    dtype = input.dtype.type
    # Rounding may reach the excluded end.
    most = float(np.nextafter(dtype(high), dtype(low)))
    width = float(high) - float(low)

    def on_host(seed: int, offset: int, count: int) -> Any:
        found = unit_numbers(seed, offset, count, input.dtype)
        return np.minimum(dtype(low) + found * dtype(width), dtype(most))

    def on_device(push: tuple[int, ...], out: TensorBase) -> None:
        groups = strided_grid(ceil_div(out.numel(), 4), WORKGROUP)
        run(UNIFORM, groups, pack(*push, float(low), width, most), out)

    _fill("uniform_", input, generator, on_host, on_device)
    return input


@export("Tensor")
def normal_(input: T, mean: float = 0.0, std: float = 1.0, *, generator: Generator | None = None) -> T:
    """Fill with random numbers, normal with a mean and a standard deviation.

    Raises:
        ArgumentError: `std` is negative.
        DTypeError: this is no tensor of floats.

    Example:
        >>> import dl4all as dl
        >>> x = dl.zeros(10000).normal_(3, 0.1)
        >>> bool(abs(x.numpy().mean() - 3) < 0.01)
        True
    """
    if not std >= 0:
        raise ArgumentError(f"[normal_] the standard deviation must be at least 0, got {std}")
    dtype = input.dtype.type

    def on_host(seed: int, offset: int, count: int) -> Any:
        found = philox.filled(np.empty(count, np.float32), seed, offset, philox.normal)
        return dtype(mean) + found.astype(dtype, copy=False) * dtype(std)

    def on_device(push: tuple[int, ...], out: TensorBase) -> None:
        groups = strided_grid(ceil_div(out.numel(), 4), WORKGROUP)
        run(NORMAL, groups, pack(*push, float(mean), float(std)), _table(out.device), out)

    _fill("normal_", input, generator, on_host, on_device)
    return input


@export("Tensor")
def bernoulli_(input: T, p: Any = 0.5, *, generator: Generator | None = None) -> T:
    """Fill with ones, each with a probability of `p`, and zeros.

    Args:
        input: of any dtype.
        p: a number, or a tensor of the input's shape with a probability for each element.
        generator: where the random numbers come from.

    Raises:
        ArgumentError: a number that is no probability, or a tensor of another shape or device.
        DTypeError: `p` is a tensor of something else than floats.

    Example:
        >>> import dl4all as dl
        >>> dl.zeros(3).bernoulli_(dl.tensor([0.0, 1.0, 1.0])).tolist()
        [0.0, 1.0, 1.0]
    """
    single = not isinstance(p, TensorBase)
    if single:
        if not 0 <= p <= 1:
            raise ArgumentError(f"[bernoulli_] expected a probability from 0 to 1, got {p}")
        chances = from_host(type(input).result_class, np.array([p], np.float32), input.device, copy=False)
    elif p.dtype.kind != "f":
        raise DTypeError(f"[bernoulli_] expected probabilities as floats, got {p.dtype}")
    elif p.shape != input.shape or p.device is not input.device:
        raise ArgumentError(
            f"[bernoulli_] expected probabilities of shape {input.shape} on {input.device}, "
            f"got {p.shape} on {p.device}"
        )
    else:
        levels = levels_of([input])
        chances = unwrap(p, levels) if levels else p

    def on_host(seed: int, offset: int, count: int) -> Any:
        units = philox.filled(np.empty(count, np.float32), seed, offset, philox.uniform)
        return units < chances.on_host().reshape(-1).astype(np.float32, copy=False)

    def on_device(push: tuple[int, ...], out: TensorBase) -> None:
        x = contiguous(chances)
        if x.dtype != np.float32:
            x = from_host(type(x).result_class, x.on_host().astype(np.float32), x.device, copy=False)
        groups = strided_grid(ceil_div(out.numel(), 4), WORKGROUP)
        run(BERNOULLI, groups, pack(*push, x.offset, int(not single)), x, out)

    _fill("bernoulli_", input, generator, on_host, on_device, kinds="fiub")
    return input


def unit_numbers(seed: int, offset: int, count: int, dtype: npt.DTypeLike) -> NDArray:
    """Numbers in [0, 1) with all the bits that a dtype has there; float64 takes two words for each."""
    kind = np.dtype(dtype)
    if kind == np.float64:
        pairs = philox.random_words(seed, offset, 2 * count).astype(np.uint64)
        wide = (pairs[::2] << np.uint64(21)) ^ (pairs[1::2] >> np.uint64(11))
        return wide.astype(np.float64) * 2.0**-53
    if kind == np.float16:
        words = philox.random_words(seed, offset, count)
        return (words >> np.uint32(21)).astype(np.float16) * np.float16(2**-11)
    return philox.filled(np.empty(count, np.float32), seed, offset, philox.uniform)


def _fill(
    name: str,
    out: TensorBase,
    generator: Generator | None,
    on_host: Callable[[int, int, int], Any],
    on_device: Callable[[tuple[int, ...], TensorBase], None],
    kinds: str = "f",
) -> None:
    """Draw the numbers of a tensor, in row-major order, where it lives.

    Raises:
        DTypeError, GradientError
        ArgumentError: several elements lie in one place, as in what was expanded.
    """
    if out.dtype.kind not in kinds:
        raise DTypeError(f"[{name}] expected a tensor of floats, got {out.dtype}")
    if tape.state.enabled and tape.wants_gradient(out):
        raise GradientError(
            f"[{name}] a tensor that requires gradients cannot be changed in place; do it within dl.no_grad()"
        )
    if overlaps_itself(out):
        raise ArgumentError(f"[{name}] elements of an expanded tensor share their memory; use .clone()")
    levels = levels_of([out])
    out = unwrap(out, levels) if levels else out
    count = out.numel()
    words = 2 * count if out.dtype == np.float64 else count
    source = default_generator() if generator is None else generator
    seed, offset = source.draw(words, every_sample=bool(levels))
    if count == 0:
        return
    device = out.device
    if not device.is_host and out.is_contiguous() and out.dtype == np.float32 and device.binds(out.storage):
        push = (count, out.offset, seed & philox.MASK, seed >> 32, offset & philox.MASK, offset >> 32)
        on_device(push, out)
    else:
        numbers = on_host(seed, offset, count).reshape(out.shape).astype(out.dtype, copy=False)
        copy_into(out, from_host(type(out).result_class, numbers, out.device, copy=False))
    out.storage.version += 1


def _table(device: Device) -> TensorBase:
    """The normal distribution's table in a device's memory."""
    if "normal" not in device.tables:
        device.tables["normal"] = from_host(TensorBase, philox.table(), device, copy=False)
    made: TensorBase = device.tables["normal"]
    return made


# Dropout


def _dropout_shape(input: TensorBase, p: float, seed: int, offset: int, inner: int) -> Result:
    check_float("random_dropout", input)
    return input.shape, input.dtype


def _rate(p: float) -> tuple[int, float]:
    """Below which word an element is dropped, and what the others are multiplied by."""
    return min(round(p * 2**32), 2**32 - 1), 0.0 if p >= 1 else 1 / (1 - p)


def _dropout_run(out: TensorBase, input: TensorBase, p: float, seed: int, offset: int, inner: int) -> None:
    x = contiguous(input)
    threshold, scale = _rate(p)
    counters = seed & philox.MASK, seed >> 32, offset & philox.MASK, offset >> 32
    push = pack(out.numel(), x.offset, *counters, threshold, scale, inner)
    invocations = ceil_div(out.numel(), 4) if inner == 1 else out.numel()
    run(DROPOUT if inner == 1 else DROPOUT_GROUPS, strided_grid(invocations, WORKGROUP), push, x, out)


def _dropout_grad(g: Any, p: float, seed: int, offset: int, inner: int) -> Any:
    return random_dropout(g, p, seed, offset, inner)


@export()
@op(
    infer=_dropout_shape,
    kernel=Kernel(_dropout_run, (DROPOUT, DROPOUT_GROUPS)),
    examples=(
        example((13, 7), p=0.3, seed=1, offset=0),
        example((2, 3, 5), p=0.5, seed=2**63 + 5, offset=2**32 - 1, inner=5),
        example((131,), p=1.0, seed=3, offset=2**64 - 2),
        example((), p=0.5, seed=4, offset=1),
        example((0, 3), p=0.5, seed=5, offset=2),
    ),
    grad=_dropout_grad,
)
def random_dropout(input: Array, p: float, seed: int, offset: int, inner: int = 1) -> Array:
    """Zeros in the place of random elements, the others divided by ``1 - p``.

    Args:
        input: floats of any shape.
        p: the probability of a zero.
        seed, offset: which random numbers, see :meth:`Generator.draw`.
        inner: how many neighbouring elements share their fate.

    Returns:
        The input's shape.

    Raises:
        DTypeError

    Example:
        >>> import dl4all as dl
        >>> dl.ops.random_dropout(dl.tensor([1.0, 2.0, 3.0, 4.0]), 0.5, seed=0, offset=0).tolist()
        [0.0, 4.0, 6.0, 8.0]
    """
    threshold, scale = _rate(p)
    words = philox.random_words(seed, offset, ceil_div(input.size, inner))
    kept = words >= np.uint32(threshold)
    if inner != 1:
        kept = np.repeat(kept, inner)
    return np.where(
        kept.reshape(input.shape), input * np.asarray(scale, input.dtype), np.zeros((), input.dtype)
    )


@export("F")
def dropout(input: T, p: float = 0.5, training: bool = True, inplace: bool = False) -> T:
    """In training, zeros in the place of random elements, the others divided by ``1 - p``.

    Hinton et al., arXiv:1207.0580. The random numbers are drawn once more for the gradient, so that no
    mask is kept.

    Args:
        input: floats of any shape.
        p: the probability of a zero.
        training: without it the input is returned as it is.
        inplace: is taken as PyTorch has it; the result has memory of its own all the same.

    Raises:
        ArgumentError: `p` is no probability.

    Example:
        >>> import dl4all as dl
        >>> set(dl.nn.functional.dropout(dl.ones(1000), p=0.75).tolist()) == {0.0, 4.0}
        True
    """
    return _dropped("dropout", input, p, training, 1)


@export("F")
def dropout2d(input: T, p: float = 0.5, training: bool = True, inplace: bool = False) -> T:
    """In training, zeros in the place of random channels, the others divided by ``1 - p``.

    Tompson et al., arXiv:1411.4280.

    Args:
        input: floats of shape (N, C, ...); with three axes (C, H, W).
        p: the probability that a channel becomes zero.
        training: without it the input is returned as it is.
        inplace: is taken as PyTorch has it; the result has memory of its own all the same.

    Raises:
        ArgumentError: `p` is no probability, or there are less than two axes.

    Example:
        >>> import dl4all as dl
        >>> x = dl.nn.functional.dropout2d(dl.ones(4, 8, 5, 5))
        >>> {len(set(channel.flatten().tolist())) for image in x for channel in image}
        {1}
    """
    ndim = len(input.shape)
    if ndim < 2:
        raise ArgumentError(f"[dropout2d] expected shape (N, C, ...), got {input.shape}")
    inner = 1
    for size in input.shape[1 if ndim == 3 else 2 :]:
        inner *= size
    return _dropped("dropout2d", input, p, training, max(inner, 1))


def _dropped(name: str, input: T, p: float, training: bool, inner: int) -> T:
    if not 0 <= p <= 1:
        raise ArgumentError(f"[{name}] expected a probability from 0 to 1, got {p}")
    if not training or p == 0:
        return input
    if isinstance(input, BatchedTensorBase):
        return _dropped_in_samples(input, float(p), inner)
    seed, offset = default_generator().draw(ceil_div(input.numel(), inner))
    result: T = random_dropout(input, float(p), seed=seed, offset=offset, inner=inner)
    return result


def _dropped_in_samples(input: T, p: float, inner: int) -> T:
    levels, (_, scale) = levels_of([input]), _rate(p)
    ones = new_like(input, input.shape)
    fill_with(ones, 1)
    every = unwrap(ones, levels)
    seed, offset = default_generator().draw(ceil_div(every.numel(), inner), every_sample=True)
    kept = wrap(random_dropout(every, p, seed=seed, offset=offset, inner=inner), levels)
    return where(gt(kept, 0), mul(input, scale), 0.0)  # type: ignore[no-any-return]
