"""Initial values of parameters, from random numbers that are the same on every device.

Functions whose names end with ``_`` change a tensor in place and return it, as PyTorch's do.
"""

from __future__ import annotations

import math
from contextlib import AbstractContextManager
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from dl4all.errors import ArgumentError, ShapeError
from dl4all.ops.core import tape
from dl4all.ops.core.dtypes import default
from dl4all.ops.core.expressions import philox
from dl4all.ops.core.limits import integer, real
from dl4all.ops.core.tensor_base import Shape, from_host
from dl4all.ops.indexing.inplace import begin_change
from dl4all.ops.memory.copy import fill_with, overwrite
from dl4all.ops.random.distributions import unit_numbers
from dl4all.ops.random.generator import Generator, default_generator
from dl4all.runtime.scopes import ScopedSetting, assigned
from dl4all.tensor.arguments import checked_shape
from dl4all.tensor.creation import empty, filled, from_numpy
from dl4all.tensor.random import uniform
from dl4all.tensor.tensor import Tensor

Mode = Literal["fan_in", "fan_out"]

GAINS = {
    "linear": 1.0, "identity": 1.0, "sigmoid": 1.0, "tanh": 5 / 3, "relu": math.sqrt(2), "selu": 0.75,
    **{f"conv{n}d": 1.0 for n in (1, 2, 3)}, **{f"conv_transpose{n}d": 1.0 for n in (1, 2, 3)},
}  # fmt: skip


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """The factor by which weights must be larger to make up for the variance that a nonlinearity removes.

    Args:
        nonlinearity: the function's name, such as ``"relu"``.
        param: the slope of ``"leaky_relu"`` below 0; 0.01 by default.

    Raises:
        ArgumentError: the nonlinearity is unknown.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.init.calculate_gain("tanh")
        1.6666666666666667
    """
    if nonlinearity == "leaky_relu":
        slope = 0.01 if param is None else real("calculate_gain", "param", param)
        return math.sqrt(2 / (1 + slope * slope))
    if nonlinearity not in GAINS:
        known = ", ".join((*GAINS, "leaky_relu"))
        raise ArgumentError(f"[calculate_gain] expected one of {known}, got {nonlinearity!r}")
    return GAINS[nonlinearity]


def fan_in_and_out(shape: Shape) -> tuple[int, int]:
    """The numbers of inputs of an output, and of outputs of an input, of a weight of shape (out, in, ...).

    Raises:
        ShapeError: there are less than two axes.

    >>> fan_in_and_out((64, 3, 7, 7))
    (147, 3136)
    """
    if len(checked_shape("init", (shape,))) < 2:
        raise ShapeError(f"[init] a weight has an axis of outputs and one of inputs; this has shape {shape}")
    receptive = math.prod(shape[2:])
    return shape[1] * receptive, shape[0] * receptive


def _calculate_fan_in_and_fan_out(tensor: Tensor) -> tuple[int, int]:
    """:func:`fan_in_and_out` of a weight, under the name by which layers of PyTorch's call it.

    >>> import dl4all as dl
    >>> _calculate_fan_in_and_fan_out(dl.empty(5, 3))
    (3, 5)
    """
    return fan_in_and_out(tensor.shape)


# Initializers that change a tensor in place


def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Fill with numbers uniform in [a, b).

    Example:
        >>> import dl4all as dl
        >>> weight = dl.empty(3, 4)
        >>> dl.nn.init.uniform_(weight) is weight
        True
    """
    with tape.gradients(False):
        return tensor.uniform_(a, b, generator=generator)


def normal_(
    tensor: Tensor, mean: float = 0.0, std: float = 1.0, generator: Generator | None = None
) -> Tensor:
    """Fill with normal numbers.

    Example:
        >>> import dl4all as dl
        >>> weight = dl.empty(3, 4)
        >>> dl.nn.init.normal_(weight) is weight
        True
    """
    with tape.gradients(False):
        return tensor.normal_(mean, std, generator=generator)


def trunc_normal_(
    tensor: Tensor,
    mean: float = 0.0,
    std: float = 1.0,
    a: float = -2.0,
    b: float = 2.0,
    generator: Generator | None = None,
) -> Tensor:
    """Fill with numbers of the normal distribution truncated to [a, b].

    Raises:
        ArgumentError: `std` is not positive, `a` not smaller than `b`, or a number not finite.

    Example:
        >>> import dl4all as dl
        >>> weight = dl.empty(3, 4)
        >>> dl.nn.init.trunc_normal_(weight) is weight
        True
    """
    mean, std = real("trunc_normal_", "mean", mean), real("trunc_normal_", "std", std)
    a, b = real("trunc_normal_", "a", a), real("trunc_normal_", "b", b)
    if not (0 < std < math.inf and math.isfinite(mean) and a < b):
        raise ArgumentError(
            f"[trunc_normal_] expected finite numbers, std > 0 and a < b, got mean {mean}, {std}, {a} and {b}"
        )
    _check_target("trunc_normal_", tensor)
    low, high = (0.5 * math.erfc((mean - bound) / std / math.sqrt(2)) for bound in (a, b))
    count = tensor.numel()
    state = (default_generator() if generator is None else generator).draw(2 * count)
    quantiles = low + (high - low) * unit_numbers(*state, count, np.float64)
    # The random words from which philox.normal makes these quantiles: the sign, and the tail's probability.
    tail = np.minimum(quantiles, 1 - quantiles) * 2.0**32
    words = np.clip(tail, 0, 2**31 - 1).astype(np.uint32) | (quantiles < 0.5).astype(np.uint32) << np.uint32(
        31
    )
    values = np.clip(mean + std * philox.normal(words).astype(np.float64), a, b)
    return _assign(tensor, values.reshape(tensor.shape))


def constant_(tensor: Tensor, val: float) -> Tensor:
    """Fill with one number.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.init.constant_(dl.empty(2, 2), 3.0).tolist()
        [[3.0, 3.0], [3.0, 3.0]]
    """
    _check_target("constant_", tensor)
    fill_with(tensor, val, "constant_")
    tensor.storage.version += 1
    return tensor


def ones_(tensor: Tensor) -> Tensor:
    """Fill with ones.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.init.ones_(dl.empty(2, 2)).tolist()
        [[1.0, 1.0], [1.0, 1.0]]
    """
    return constant_(tensor, 1.0)


def zeros_(tensor: Tensor) -> Tensor:
    """Fill with zeros.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.init.zeros_(dl.empty(2, 2)).tolist()
        [[0.0, 0.0], [0.0, 0.0]]
    """
    return constant_(tensor, 0.0)


def eye_(tensor: Tensor) -> Tensor:
    """Fill a matrix with ones on the diagonal and zeros elsewhere.

    Raises:
        ShapeError: the tensor is no matrix.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.init.eye_(dl.empty(2, 2)).tolist()
        [[1.0, 0.0], [0.0, 1.0]]
    """
    rows, columns = _check_matrix("eye_", tensor)
    return _assign(tensor, np.eye(rows, columns))


def dirac_(tensor: Tensor, groups: int = 1) -> Tensor:
    """Fill convolution filters so that each passes one input channel on unchanged (the Dirac delta).

    Args:
        tensor: shape (filters, channels, L), (filters, channels, H, W) or (filters, channels, D, H, W).
        groups: how many groups the filters form; each group starts with the first channel.

    Raises:
        ShapeError: the shape is not that of filters, or the groups differ in size.

    Example:
        >>> import dl4all as dl
        >>> weight = dl.empty(3, 3, 5)
        >>> dl.nn.init.dirac_(weight) is weight
        True
    """
    shape = tensor.shape
    if not 3 <= len(shape) <= 5:
        raise ShapeError(f"[dirac_] expected filters with 1 to 3 axes of their own, got shape {shape}")
    if groups < 1 or shape[0] % groups:
        raise ShapeError(f"[dirac_] {shape[0]} filters do not make {groups} groups of equal size")
    _check_target("dirac_", tensor)
    filters = np.zeros(shape)
    group_size = shape[0] // groups
    for i in range(min(group_size, shape[1])):
        index: tuple[Any, ...] = (slice(i, None, group_size), i, *(size // 2 for size in shape[2:]))
        filters[index] = 1
    return _assign(tensor, filters)


def xavier_uniform_(tensor: Tensor, gain: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Glorot initialization: fill with uniform numbers that keep the variance forward and backward.

    The bound is ``gain * sqrt(6 / (fan_in + fan_out))`` (Glorot and Bengio, AISTATS 2010, equation 16).

    Raises:
        ShapeError: there are less than two axes.

    Example:
        >>> import dl4all as dl
        >>> weight = dl.empty(3, 4)
        >>> dl.nn.init.xavier_uniform_(weight) is weight
        True
    """
    bound = real("xavier_uniform_", "gain", gain) * math.sqrt(6 / max(sum(fan_in_and_out(tensor.shape)), 1))
    return uniform_(tensor, -bound, bound, generator)


def xavier_normal_(tensor: Tensor, gain: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Glorot initialization: fill with normal numbers that keep the variance forward and backward.

    The standard deviation is ``gain * sqrt(2 / (fan_in + fan_out))`` (Glorot and Bengio, AISTATS 2010).

    Raises:
        ShapeError: there are less than two axes.

    Example:
        >>> import dl4all as dl
        >>> weight = dl.empty(3, 4)
        >>> dl.nn.init.xavier_normal_(weight) is weight
        True
    """
    std = real("xavier_normal_", "gain", gain) * math.sqrt(2 / max(sum(fan_in_and_out(tensor.shape)), 1))
    return normal_(tensor, 0.0, std, generator)


def kaiming_uniform_(
    tensor: Tensor,
    a: float = 0,
    mode: Mode = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Generator | None = None,
) -> Tensor:
    """He initialization: fill with uniform numbers that keep the variance through a rectifier.

    The bound is ``gain * sqrt(3 / fan)`` (He et al., arXiv:1502.01852).

    Args:
        tensor: the weight, of shape (out, in, ...).
        a: the slope of ``"leaky_relu"`` below 0.
        mode: ``"fan_in"`` keeps the variance of the activations, ``"fan_out"`` that of the gradients.
        nonlinearity: as for :func:`calculate_gain`.
        generator: the source of the random numbers.

    Raises:
        ShapeError: there are less than two axes.
        ArgumentError: the mode or the nonlinearity is unknown.

    Example:
        >>> import dl4all as dl
        >>> weight = dl.empty(3, 4)
        >>> dl.nn.init.kaiming_uniform_(weight) is weight
        True
    """
    bound = math.sqrt(3) * _kaiming_std("kaiming_uniform_", tensor, a, mode, nonlinearity)
    return uniform_(tensor, -bound, bound, generator)


def kaiming_normal_(
    tensor: Tensor,
    a: float = 0,
    mode: Mode = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Generator | None = None,
) -> Tensor:
    """He initialization: fill with normal numbers that keep the variance through a rectifier.

    Arguments as for :func:`kaiming_uniform_`.

    Raises:
        ShapeError, ArgumentError

    Example:
        >>> import dl4all as dl
        >>> weight = dl.empty(3, 4)
        >>> dl.nn.init.kaiming_normal_(weight) is weight
        True
    """
    return normal_(tensor, 0.0, _kaiming_std("kaiming_normal_", tensor, a, mode, nonlinearity), generator)


def _kaiming_std(name: str, tensor: Tensor, a: float, mode: str, nonlinearity: str) -> float:
    if mode not in ("fan_in", "fan_out"):
        raise ArgumentError(f"[{name}] expected the mode 'fan_in' or 'fan_out', got {mode!r}")
    fans = fan_in_and_out(tensor.shape)
    return calculate_gain(nonlinearity, real(name, "a", a)) / math.sqrt(max(fans[mode == "fan_out"], 1))


def orthogonal_(tensor: Tensor, gain: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Fill with orthogonal rows, or columns if they are fewer, of length `gain`.

    The axes after the first are flattened (Saxe et al., arXiv:1312.6120). Computed on the host.

    Raises:
        ShapeError: there are less than two axes.

    Example:
        >>> import dl4all as dl
        >>> weight = dl.empty(3, 4)
        >>> dl.nn.init.orthogonal_(weight) is weight
        True
    """
    if tensor.ndim < 2:
        raise ShapeError(f"[orthogonal_] expected at least two axes, got {tensor.shape}")
    _check_target("orthogonal_", tensor)
    rows, columns = tensor.shape[0], math.prod(tensor.shape[1:])
    gain = real("orthogonal_", "gain", gain)
    state = (default_generator() if generator is None else generator).draw(rows * columns)
    flat = philox.filled(np.empty(rows * columns, np.float32), *state, philox.normal)
    matrix = flat.reshape(rows, columns).astype(np.float64)
    q, r = np.linalg.qr(matrix.T if rows < columns else matrix)
    q *= np.where(np.diag(r) < 0, -1.0, 1.0)  # QR alone does not give random signs
    return _assign(tensor, gain * (q.T if rows < columns else q).reshape(tensor.shape))


def sparse_(tensor: Tensor, sparsity: float, std: float = 0.01, generator: Generator | None = None) -> Tensor:
    """Fill a matrix with normal numbers, and set a share of each column to zero.

    Args:
        tensor: a matrix.
        sparsity: the share of zeros, rounded up to whole rows.
        std: the standard deviation of the other elements.
        generator: the source of the random numbers.

    Raises:
        ShapeError: the tensor is no matrix.
        ArgumentError: the share is not from 0 to 1.

    Example:
        >>> import dl4all as dl
        >>> weight = dl.empty(3, 4)
        >>> dl.nn.init.sparse_(weight, 0.5) is weight
        True
    """
    rows, columns = _check_matrix("sparse_", tensor)
    if not 0 <= real("sparse_", "sparsity", sparsity) <= 1:
        raise ArgumentError(f"[sparse_] expected a share from 0 to 1, got {sparsity!r}")
    std = real("sparse_", "std", std)
    source = default_generator() if generator is None else generator
    flat = philox.filled(np.empty(rows * columns, np.float32), *source.draw(rows * columns), philox.normal)
    values = flat.reshape(rows, columns) * np.float32(std)
    order = philox.random_words(*source.draw(rows * columns), rows * columns).reshape(rows, columns)
    dropped = np.argsort(order, axis=0, kind="stable")[: math.ceil(sparsity * rows)]
    np.put_along_axis(values, dropped, 0.0, axis=0)
    return _assign(tensor, values)


def _check_matrix(name: str, tensor: Tensor) -> Shape:
    if tensor.ndim != 2:
        raise ShapeError(f"[{name}] expected a matrix, got shape {tensor.shape}")
    _check_target(name, tensor)
    return tensor.shape


def _check_target(name: str, tensor: Tensor) -> None:
    """
    Raises:
        ArgumentError: elements share memory.
    """
    with tape.gradients(False):
        begin_change(name, tensor)


def _assign(tensor: Tensor, values: npt.NDArray[Any]) -> Tensor:
    """Overwrite a tensor with values from the host; returns the tensor."""
    overwrite(tensor, from_host(Tensor, values.astype(tensor.dtype), tensor.device, copy=False))
    return tensor


# Initial values of layers, as new tensors on the CPU

_skipped = ScopedSetting(False)


def skipping() -> AbstractContextManager[None]:
    """The block in which layers get placeholders of their weights' shapes, in whose place others are put.

    They take no memory, and lie on the CPU wherever the layer was to be.

    Example:
        >>> import dl4all as dl
        >>> with dl.nn.init.skipping():
        ...     layer = dl.nn.Linear(2, 3)
        >>> layer.weight.shape, layer.weight.stride()
        ((3, 2), (0, 0))
    """
    return assigned(_skipped, True)


def skips() -> bool:
    """Whether layers get placeholders.

    Example:
        >>> import dl4all as dl
        >>> with dl.nn.init.skipping():
        ...     dl.nn.init.skips()
        True
    """
    return _skipped.value


def _placeholder(shape: Shape) -> Tensor:
    return empty((1,) * len(shape), device="cpu").expand(*shape)


def standard_normal(shape: Shape) -> Tensor:
    """Normal numbers of mean 0 and deviation 1, on the CPU.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.init.standard_normal((3, 4)).shape
        (3, 4)
    """
    return _placeholder(shape) if _skipped.value else normal_(empty(shape, device="cpu"))


def kaiming_uniform(shape: Shape, a: float = math.sqrt(5)) -> Tensor:
    """Uniform numbers that keep the variance of the activations (He initialization), on the CPU.

    The bound is ``sqrt(6 / ((1 + a^2) fan_in))`` (He et al., arXiv:1502.01852, equation 14); with
    PyTorch's default ``a = sqrt(5)`` it is ``1 / sqrt(fan_in)``.

    Example:
        >>> import dl4all as dl
        >>> bool((dl.nn.init.kaiming_uniform((3, 4)).abs() <= 0.5).all())
        True
    """
    fan_in, _ = fan_in_and_out(shape)
    slope = real("kaiming_uniform", "a", a)
    bound = math.sqrt(6 / ((1 + slope * slope) * fan_in)) if fan_in else 0.0
    return _between(shape, bound)


def fan_in_uniform(shape: Shape, fan_in: int) -> Tensor:
    """Uniform numbers between -b and b, ``b = 1 / sqrt(fan_in)``: PyTorch's initial bias, on the CPU.

    Example:
        >>> import dl4all as dl
        >>> bool((dl.nn.init.fan_in_uniform((3,), 4).abs() <= 0.5).all())
        True
    """
    integer("init", "the number of inputs", fan_in, least=0)
    return _between(shape, 1 / math.sqrt(fan_in) if fan_in else 0.0)


def _between(shape: Shape, bound: float) -> Tensor:
    return _placeholder(shape) if _skipped.value else from_numpy(uniform(shape, -bound, bound))


def zeros(shape: Shape) -> Tensor:
    """Zeros on the CPU.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.init.zeros((2,)).tolist()
        [0.0, 0.0]
    """
    return filled("init", checked_shape("init", (shape,)), np.zeros((), default.dtype), "cpu")


def ones(shape: Shape) -> Tensor:
    """Ones on the CPU.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.init.ones((2,)).tolist()
        [1.0, 1.0]
    """
    return filled("init", checked_shape("init", (shape,)), np.ones((), default.dtype), "cpu")
