"""Random numbers: fills in place, random choices and dropout, from the generators of the devices."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from dl4all import ops
from dl4all.errors import ArgumentError
from dl4all.ops.core.dtypes import kind_of
from dl4all.ops.core.tensor_base import TensorBase
from dl4all.ops.memory.copy import fill_with, new_like, overwrite
from dl4all.ops.random.generator import Generator
from dl4all.pytorch.device import generators
from dl4all.pytorch.device.devices import device_at, index_of_opened
from dl4all.pytorch.device.dispatch.registration import declare, native
from dl4all.pytorch.device.storage import memory
from dl4all.pytorch.device.storage.layout import broadcast_shape
from dl4all.pytorch.device.storage.memory import NotNative, tensor, wrap
from dl4all.tensor.creation import from_numpy
from dl4all.tensor.host_random import permutation

FLOAT32 = np.dtype(np.float32)

# Fills in place


def fill(
    target: torch.Tensor, method: str, *args: Any, generator: torch.Generator | None = None, **kwargs: Any
) -> torch.Tensor:
    """Fill a tensor of any strides by a method of dl4all's tensors.

    Raises:
        NotNative: several elements share memory.
    """
    own = tensor(target)
    short = own.dtype == np.float16  # drawn in float32, and rounded
    numbers = (
        own if own.is_contiguous() and not short else new_like(own, own.shape, FLOAT32 if short else None)
    )
    source = generators.chosen(generator, target.get_device())
    getattr(numbers, method)(*args, generator=source, **kwargs)
    if numbers is not own:
        overwrite(own, numbers)
    return target


@native("uniform_")
def uniform(target: torch.Tensor, low: float = 0.0, high: float = 1.0, **options: Any) -> torch.Tensor:
    return fill(target, "uniform_", low, high, **options)


@native("normal_")
def normal(target: torch.Tensor, mean: float = 0.0, std: float = 1.0, **options: Any) -> torch.Tensor:
    return fill(target, "normal_", mean, std, **options)


@native("exponential_")
def exponential(target: torch.Tensor, lambd: float = 1.0, **options: Any) -> torch.Tensor:
    return fill(target, "exponential_", lambd, **options)


@native("log_normal_")
def log_normal(target: torch.Tensor, mean: float = 1.0, std: float = 2.0, **options: Any) -> torch.Tensor:
    return fill(target, "log_normal_", mean, std, **options)


@native("cauchy_")
def cauchy(target: torch.Tensor, median: float = 0.0, sigma: float = 1.0, **options: Any) -> torch.Tensor:
    return fill(target, "cauchy_", median, sigma, **options)


@native("geometric_")
def geometric(target: torch.Tensor, p: float, **options: Any) -> torch.Tensor:
    return fill(target, "geometric_", p, **options)


@native("random_")
def random(target: torch.Tensor, **options: Any) -> torch.Tensor:
    return fill(target, "random_", **options)


@native("random_.to")
def random_below(target: torch.Tensor, to: int, **options: Any) -> torch.Tensor:
    return fill(target, "random_", to, **options)


@native("random_.from")
def random_between(target: torch.Tensor, start: int, to: int | None, **options: Any) -> torch.Tensor:
    if to is None:
        raise NotNative("random numbers up to the largest of the dtype")
    return fill(target, "random_", start, to, **options)


@native("bernoulli_.float")
def bernoulli(target: torch.Tensor, p: float = 0.5, **options: Any) -> torch.Tensor:
    return fill(target, "bernoulli_", p, **options)


@native("bernoulli_.Tensor")
def bernoulli_by(target: torch.Tensor, p: torch.Tensor, **options: Any) -> torch.Tensor:
    return fill(target, "bernoulli_", tensor(p.expand(target.shape)), **options)


# Random choices


def _generator(like: TensorBase, generator: torch.Generator | None) -> Generator:
    return generators.chosen(generator, index_of_opened(like.device))


def normal_around(mean: Any, std: Any = 1.0, *, generator: torch.Generator | None = None) -> Any:
    """Normal numbers, with a mean or a deviation for each element."""
    like = mean if isinstance(mean, TensorBase) else std
    shape = like.shape
    if isinstance(mean, TensorBase) and isinstance(std, TensorBase):
        shape = broadcast_shape([mean.shape, std.shape])
    elif not isinstance(std, TensorBase) and not std >= 0:
        raise ArgumentError(f"[normal] the standard deviation must be at least 0, got {std}")
    numbers = new_like(like, shape).normal_(generator=_generator(like, generator))
    return ops.add(ops.mul(numbers, std), mean)


def multinomial(
    input: Any, num_samples: int, replacement: bool = False, *, generator: torch.Generator | None = None
) -> Any:
    """Indices drawn with the weights in each row.

    Without replacement, those of the first arrivals of exponential clocks with these rates; with it, where
    uniform numbers fall among the cumulative sums.
    """
    if input.dtype.name != "float32" or len(input.shape) not in (1, 2) or num_samples < 1:
        raise NotNative(f"weights of {input.dtype} and shape {input.shape}, {num_samples} samples")
    if not input.numel() or (not replacement and num_samples > input.shape[-1]):
        raise NotNative(f"{num_samples} samples from weights of shape {input.shape}")
    usable = ops.logical_and(ops.ge(input, 0.0), ops.lt(input, math.inf))
    positive = ops.sum(ops.cast(ops.gt(input, 0.0), "float32"), -1)
    needed = 1.0 if replacement else float(num_samples)
    if not (ops.all(usable).item() and ops.amin(positive).item() >= needed):
        raise NotNative("weights must be finite and not negative, and enough of them positive")
    source = _generator(input, generator)
    if num_samples == 1 or not replacement:
        clocks = new_like(input, input.shape).exponential_(generator=source)
        return ops.topk(ops.true_divide(input, clocks), num_samples)[1]
    sums = ops.cumsum(input, -1)
    uniform = new_like(input, (*input.shape[:-1], num_samples)).uniform_(generator=source)
    total = ops.narrow(sums, -1, input.shape[-1] - 1, 1)
    places = ops.searchsorted(sums, ops.mul(uniform, total), right=True)
    return places


declare("multinomial", multinomial)
for _name in ("normal.Tensor_float", "normal.float_Tensor", "normal.Tensor_Tensor"):
    declare(_name, normal_around)


@native("randperm.generator_out")
def randperm(n: int, *, generator: torch.Generator | None, out: torch.Tensor) -> torch.Tensor:
    dtype = memory.NUMPY_DTYPES.get(out.dtype)
    if dtype is None:
        raise NotNative(f"random permutations of {out.dtype}")
    index = out.get_device()
    numbers = from_numpy(permutation(n, dtype, generators.chosen(generator, index)), device_at(index))
    return memory.deliver(numbers, out)


@native("randperm.out")
def randperm_by_device(n: int, *, out: torch.Tensor) -> torch.Tensor:
    result: torch.Tensor = randperm(n, generator=None, out=out)
    return result


# Activations with noise, and dropout


@native("rrelu_with_noise")
def rrelu_with_noise(
    input: torch.Tensor,
    noise: torch.Tensor,
    lower: float = 0.125,
    upper: float = 1 / 3,
    training: bool = False,
    generator: torch.Generator | None = None,
) -> torch.Tensor:
    """In training, the input times the noise, which becomes random slopes up to 0 and 1 above."""
    own = tensor(input)
    if not training:
        return wrap(ops.leaky_relu(own, (lower + upper) / 2))
    slopes = new_like(own, own.shape).uniform_(lower, upper, generator=_generator(own, generator))
    factors = ops.where(ops.le(own, 0.0), slopes, 1.0)
    overwrite(tensor(noise), factors)
    return wrap(ops.mul(own, factors))


@native("rrelu_with_noise_")
def rrelu_with_noise_in_place(input: torch.Tensor, *args: Any, **options: Any) -> torch.Tensor:
    result: torch.Tensor = input.copy_(rrelu_with_noise(input, *args, **options))
    return result


def native_dropout(input: Any, p: float, train: bool | None) -> tuple[Any, Any]:
    """The input with random elements set to zero, and which elements stay."""
    if kind_of(input.dtype) != "f":
        raise NotNative(f"dropout of {input.dtype}")
    if train is False:
        kept = new_like(input, input.shape)
        fill_with(kept, 1)
        return ops.clone(input), ops.cast(kept, "bool")
    drawn = new_like(input, input.shape, FLOAT32).bernoulli_(1 - p, generator=_generator(input, None))
    kept = ops.cast(drawn, "bool")
    return native_dropout_backward(input, kept, 0.0 if p == 1 else 1 / (1 - p)), kept


def native_dropout_backward(grad_output: Any, mask: Any, scale: float) -> Any:
    return ops.mul(ops.where(mask, grad_output, 0.0), scale)


declare("native_dropout", native_dropout)
declare("native_dropout_backward", native_dropout_backward)
