"""Random fills of tensors: uniform, normal and Bernoulli, with the same bits on every device."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from dl4all.errors import ArgumentError, DTypeError, GradientError
from dl4all.ops.core import tape
from dl4all.ops.core.dtypes import HALVES, finfo, kind_of
from dl4all.ops.core.exports import export
from dl4all.ops.core.expressions import philox
from dl4all.ops.core.kernels.host_work import WorkKernel, host_work
from dl4all.ops.core.kernels.launch import ceil_div, run, shader, strided_grid
from dl4all.ops.core.kernels.push_block import PushBlock
from dl4all.ops.core.limits import real
from dl4all.ops.core.op import KERNEL_REFUSALS, SHARED, primitives
from dl4all.ops.core.tensor_base import Array, TensorBase, from_host
from dl4all.ops.memory.copy import copy_into, overlaps_itself
from dl4all.ops.memory.views import contiguous
from dl4all.ops.random.generator import Generator, default_generator, state_words
from dl4all.ops.vmap.batched_tensor import levels_of, unwrap
from dl4all.scheduler import fallback
from dl4all.scheduler.device.device import Device

T = TypeVar("T", bound=TensorBase)
NDArray = npt.NDArray[Any]

WORKGROUP = 128
UNIFORM_PUSH = PushBlock(
    "random/uniform.comp",
    "uint n, y_offset; uvec2 key, start; float low, width, largest;",
)
NORMAL_PUSH = PushBlock("random/normal.comp", "uint n, y_offset; uvec2 key, start; float mean, std;")
BERNOULLI_PUSH = PushBlock(
    "random/bernoulli.comp",
    "uint n, y_offset; uvec2 key, start; uint x_offset, x_stride;",
)
UNIFORM = shader("random/uniform.comp")
NORMAL = shader("random/normal.comp")
BERNOULLI = shader("random/bernoulli.comp")
SHARED.extend((UNIFORM, NORMAL, BERNOULLI))


@export("Tensor")
def uniform_(input: T, low: float = 0.0, high: float = 1.0, *, generator: Generator | None = None) -> T:
    """Fill the tensor with numbers from the uniform distribution on [low, high).

    Raises:
        ArgumentError: `low` is larger than `high`, or not finite.
        DTypeError: the tensor is not of floats.

    Example:
        >>> import dl4all as dl
        >>> x = dl.zeros(100).uniform_(-1, 1)
        >>> bool(-1 <= x.numpy().min() and x.numpy().max() < 1)
        True
    """
    limits = real("uniform_", "low", low), real("uniform_", "high", high)
    if not (np.isfinite(limits).all() and limits[0] <= limits[1]):
        raise ArgumentError(f"[uniform_] expected finite numbers low <= high, got {low} and {high}")
    dtype = input.dtype.type
    # Rounding may reach the excluded end.
    largest = float(np.nextafter(dtype(high), dtype(low)))
    width = float(high) - float(low)

    def on_host(seed: int, offset: int, count: int) -> Any:
        units = unit_numbers(seed, offset, count, np.dtype(dtype))
        return np.minimum(dtype(low) + units * dtype(width), dtype(largest))

    def on_device(push: tuple[int, ...], out: TensorBase) -> None:
        groups = strided_grid(ceil_div(out.numel(), 4), WORKGROUP, out.device)
        run(UNIFORM, groups, UNIFORM_PUSH.pack(*push, float(low), width, largest), out)

    kernel = WorkKernel("uniform_", (float(low), width, largest))
    _fill("uniform_", input, generator, on_host, on_device, kernel=kernel)
    return input


@export("Tensor")
def normal_(input: T, mean: float = 0.0, std: float = 1.0, *, generator: Generator | None = None) -> T:
    """Fill the tensor with numbers from the normal distribution.

    Raises:
        ArgumentError: `std` is negative.
        DTypeError: the tensor is not of floats.

    Example:
        >>> import dl4all as dl
        >>> x = dl.zeros(10000).normal_(3, 0.1)
        >>> bool(abs(x.numpy().mean() - 3) < 0.01)
        True
    """
    mean, std = real("normal_", "mean", mean), real("normal_", "std", std)
    if not std >= 0:
        raise ArgumentError(f"[normal_] the standard deviation must be at least 0, got {std}")
    dtype = input.dtype.type

    def on_host(seed: int, offset: int, count: int) -> Any:
        standard = philox.filled(np.empty(count, np.float32), seed, offset, philox.normal)
        return dtype(mean) + standard.astype(dtype, copy=False) * dtype(std)

    def on_device(push: tuple[int, ...], out: TensorBase) -> None:
        groups = strided_grid(ceil_div(out.numel(), 4), WORKGROUP, out.device)
        run(NORMAL, groups, NORMAL_PUSH.pack(*push, float(mean), float(std)), _normal_table(out.device), out)

    _fill("normal_", input, generator, on_host, on_device)
    return input


@export("Tensor")
def bernoulli_(input: T, p: Array | float = 0.5, *, generator: Generator | None = None) -> T:
    """Fill the tensor with zeros and ones, a one with probability `p`.

    Args:
        input: of any dtype.
        p: a number, or a tensor of floats of the input's shape and on its device. A GPU does not look at its
            elements: those above 1 count as 1, those below 0 and nan as 0.
        generator: the default one if not given.

    Raises:
        ArgumentError: `p` is a number outside [0, 1], a tensor of another shape or device, or on the CPU one
            with elements outside [0, 1].
        DTypeError: `p` is a tensor, but not of floats.

    Example:
        >>> import dl4all as dl
        >>> dl.zeros(3).bernoulli_(dl.tensor([0.0, 1.0, 1.0])).tolist()
        [0.0, 1.0, 1.0]
    """
    if not isinstance(p, TensorBase):
        check_probability("bernoulli_", p)
        probabilities = from_host(
            type(input).result_class, np.array([p], np.float32), input.device, copy=False
        )
    elif kind_of(p.dtype) != "f":
        raise DTypeError(f"[bernoulli_] expected probabilities as floats, got {p.dtype}")
    elif p.shape != input.shape or p.device is not input.device:
        raise ArgumentError(
            f"[bernoulli_] expected probabilities of shape {input.shape} on {input.device}, "
            f"got {p.shape} on {p.device}"
        )
    else:
        levels = levels_of([input])
        probabilities = unwrap(p, levels) if levels else p

    def on_host(seed: int, offset: int, count: int, probability: Any) -> Any:
        if not ((probability >= 0) & (probability <= 1)).all():
            raise ArgumentError("[bernoulli_] expected probabilities from 0 to 1, got some outside or nan")
        units = philox.filled(np.empty(count, np.float32), seed, offset, philox.uniform)
        return units < probability.reshape(-1).astype(np.float32, copy=False)

    def on_device(push: tuple[int, ...], out: TensorBase) -> None:
        x = contiguous(probabilities)
        if x.dtype != np.float32:
            x = primitives.cast.compute([x], {"dtype": "float32"})
        groups = strided_grid(ceil_div(out.numel(), 4), WORKGROUP, out.device)
        run(BERNOULLI, groups, BERNOULLI_PUSH.pack(*push, x.offset, int(isinstance(p, TensorBase))), x, out)

    _fill("bernoulli_", input, generator, on_host, on_device, "fiub", probabilities)
    return input


def check_probability(name: str, p: float) -> None:
    """
    Raises:
        ArgumentError: `p` is outside [0, 1].
    """
    if not 0 <= p <= 1:
        raise ArgumentError(f"[{name}] expected a probability from 0 to 1, got {p}")


def unit_numbers(seed: int, offset: int, count: int, dtype: npt.DTypeLike) -> NDArray:
    """Uniform numbers in [0, 1) with the full precision of a dtype; float64 takes two words for a number."""
    dtype = np.dtype(dtype)
    if dtype == np.float64:
        pairs = philox.random_words(seed, offset, 2 * count).astype(np.uint64)
        bits = (pairs[::2] << np.uint64(21)) ^ (pairs[1::2] >> np.uint64(11))
        return bits.astype(np.float64) * 2.0**-53
    if dtype in HALVES:
        words, bits = philox.random_words(seed, offset, count), finfo(dtype).nmant + 1
        return ((words >> np.uint32(32 - bits)).astype(np.float32) * np.float32(2.0**-bits)).astype(dtype)
    return philox.filled(np.empty(count, np.float32), seed, offset, philox.uniform)


def _fill(
    name: str,
    out: TensorBase,
    generator: Generator | None,
    on_host: Callable[..., Any],
    on_device: Callable[[tuple[int, ...], TensorBase], None],
    dtype_kinds: str = "f",
    operand: TensorBase | None = None,
    kernel: WorkKernel | None = None,
) -> None:
    """Fill a tensor in row-major order, on its device if a kernel can.

    Args:
        name: of the op, for errors.
        out: the tensor.
        generator: the default one if None.
        on_host: takes seed, counter, count and the operand's array, and returns the numbers.
        on_device: takes the push constants that all kernels share, and the tensor.
        dtype_kinds: NumPy's letters for the kinds of dtypes that are allowed.
        operand: a tensor that the numbers depend on.
        kernel: does what `on_host` does, given seed and counter as numbers.

    Raises:
        DTypeError, GradientError
        ArgumentError: elements share memory, as those of an expanded tensor do.
    """
    if kind_of(out.dtype) not in dtype_kinds:
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
    state = (count, out.offset, *state_words(seed, offset))
    cause = None if out.device.is_host else _fill_on_device(on_device, state, out)
    if out.device.is_cpu:
        write = functools.partial(_write_numbers, on_host)
        host_work(name, write, () if operand is None else [operand], [out], (seed, offset), kernel)
    elif out.device.is_host or cause is not None:
        with contextlib.nullcontext() if cause is None else fallback.on_host(name, out.device, cause):
            arrays = () if operand is None else (operand.on_host(),)
            numbers = on_host(seed, offset, count, *arrays).reshape(out.shape).astype(out.dtype, copy=False)
            copy_into(out, from_host(type(out).result_class, numbers, out.device, copy=False))
    out.storage.version += 1


def _write_numbers(on_host: Callable[..., Any], *arrays: Any) -> None:
    """Write what `on_host` returns; `arrays` are the operand, if any, the target, seed and counter."""
    *operand, target, seed, offset = arrays
    target[...] = on_host(seed, offset, target.size, *operand).reshape(target.shape)


def _fill_on_device(
    on_device: Callable[[tuple[int, ...], TensorBase], None], state: tuple[int, ...], out: TensorBase
) -> fallback.Cause | None:
    """Fill a tensor by its kernel; the result says why that cannot be, or is None."""
    device, dtype = out.device, out.dtype.name
    if out.dtype != np.float32:
        return fallback.no_dtype(device, dtype)
    if not out.is_contiguous():
        return fallback.no_layout(device, dtype)
    if not device.memory.binds(out.storage):
        return fallback.too_large(device, dtype)
    try:
        on_device(state, out)
    except KERNEL_REFUSALS as error:
        return fallback.refused(device, error, dtype)
    return None


def _normal_table(device: Device) -> TensorBase:
    """The table of the normal distribution's quantiles in a device's memory."""
    if "normal" not in device.tables:
        device.tables["normal"] = from_host(TensorBase, philox.table(), device, copy=False)
    table: TensorBase = device.tables["normal"]
    return table
