"""Dropout of elements and of channels, and alpha dropout."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np

from dl4all.errors import ArgumentError
from dl4all.ops.core.checks import check_float
from dl4all.ops.core.exports import export
from dl4all.ops.core.expressions import philox
from dl4all.ops.core.kernels.launch import ceil_div, run, shader, strided_grid
from dl4all.ops.core.kernels.push_block import PushBlock
from dl4all.ops.core.op import Kernel, Result, empty, example, op
from dl4all.ops.core.tensor_base import Array, Shape, TensorBase
from dl4all.ops.core.vmap_hook import BatchedTensorBase
from dl4all.ops.elementwise.arithmetic import add, mul
from dl4all.ops.elementwise.comparison import gt
from dl4all.ops.elementwise.logic import where
from dl4all.ops.indexing.inplace import in_place
from dl4all.ops.memory.copy import fill_with, new_like
from dl4all.ops.memory.views import contiguous
from dl4all.ops.random.distributions import bernoulli_, check_probability
from dl4all.ops.random.generator import default_generator, state_words
from dl4all.ops.vmap.batched_tensor import levels_of, unwrap, wrap

T = TypeVar("T", bound=TensorBase)

WORKGROUP = 128
DROPOUT_PUSH = PushBlock(
    "random/dropout.comp",
    "uint n, x_offset; uvec2 key, start; uint threshold; float scale; uint inner;",
)
DROPOUT = shader("random/dropout.comp")
DROPOUT_GROUPS = shader("random/dropout.comp", SHARED=1)

SELU_MINIMUM = -1.7580993408473766
"""The limit of SELU at minus infinity: -scale * alpha."""


def _infer_dropout(input: TensorBase, p: float, seed: int, offset: int, inner: int) -> Result:
    check_float("random_dropout", input)
    return input.shape, input.dtype


def threshold_and_scale(p: float) -> tuple[int, float]:
    """The random word below which an element is dropped, and the factor for the others."""
    return min(round(p * 2**32), 2**32 - 1), 0.0 if p >= 1 else 1 / (1 - p)


def _run_dropout(out: TensorBase, input: TensorBase, p: float, seed: int, offset: int, inner: int) -> None:
    x = contiguous(input)
    threshold, scale = threshold_and_scale(p)
    push = DROPOUT_PUSH.pack(out.numel(), x.offset, *state_words(seed, offset), threshold, scale, inner)
    invocations = ceil_div(out.numel(), 4) if inner == 1 else out.numel()
    run(
        DROPOUT if inner == 1 else DROPOUT_GROUPS,
        strided_grid(invocations, WORKGROUP, out.device),
        push,
        x,
        out,
    )


@export()
@op(
    infer=_infer_dropout,
    kernel=Kernel(_run_dropout, (DROPOUT, DROPOUT_GROUPS)),
    examples=(
        example((13, 7), p=0.3, seed=1, offset=0),
        example((2, 3, 5), p=0.5, seed=2**63 + 5, offset=2**32 - 1, inner=5),
        example((131,), p=1.0, seed=3, offset=2**64 - 2),
        example((), p=0.5, seed=4, offset=1),
        example((0, 3), p=0.5, seed=5, offset=2),
    ),
    overwrites=True,
)
def random_dropout(input: Array, p: float, seed: int, offset: int, inner: int = 1) -> Array:
    """Set random elements to zero and divide the others by ``1 - p``.

    Args:
        input: floats of any shape.
        p: the probability of a zero.
        seed, offset: of the random numbers, as :meth:`Generator.draw` returns them.
        inner: how many neighbouring elements are dropped together.

    Returns:
        The input's shape.

    Raises:
        DTypeError

    Example:
        >>> import dl4all as dl
        >>> dl.ops.random_dropout(dl.tensor([1.0, 2.0, 3.0, 4.0]), 0.5, seed=0, offset=0).tolist()
        [0.0, 4.0, 6.0, 8.0]
    """
    threshold, scale = threshold_and_scale(p)
    words = philox.random_words(seed, offset, ceil_div(input.size, inner))
    kept = words >= np.uint32(threshold)
    if inner != 1:
        kept = np.repeat(kept, inner)
    return np.where(
        kept.reshape(input.shape), input * np.asarray(scale, input.dtype), np.zeros((), input.dtype)
    )


random_dropout.defgrad(lambda g, p, seed, offset, inner: random_dropout(g, p, seed, offset, inner))


@export("F")
def dropout(input: T, p: float = 0.5, training: bool = True, inplace: bool = False) -> T:
    """Dropout (Hinton et al., arXiv:1207.0580): in training, set random elements to zero.

    The others are divided by ``1 - p``. The gradient draws the random numbers again, so no mask is kept.

    Args:
        input: floats of any shape.
        p: the probability of a zero.
        training: without it, the input is returned.
        inplace: write the result into the input, and return that.

    Raises:
        ArgumentError: `p` is outside [0, 1].

    Example:
        >>> import dl4all as dl
        >>> set(dl.nn.functional.dropout(dl.ones(1000), p=0.75).tolist()) == {0.0, 4.0}
        True
    """
    return _dropout("dropout", input, p, training, 1, inplace)


@export("F")
def dropout2d(input: T, p: float = 0.5, training: bool = True, inplace: bool = False) -> T:
    """Spatial dropout (Tompson et al., arXiv:1411.4280): in training, set random channels to zero.

    The others are divided by ``1 - p``.

    Args:
        input: floats of shape (N, C, ...); with three axes (C, H, W).
        p: the probability that a channel becomes zero.
        training: without it, the input is returned.
        inplace: write the result into the input, and return that.

    Raises:
        ArgumentError: `p` is outside [0, 1], or there are fewer than two axes.

    Example:
        >>> import dl4all as dl
        >>> x = dl.nn.functional.dropout2d(dl.ones(4, 8, 5, 5))
        >>> {len(set(channel.flatten().tolist())) for image in x for channel in image}
        {1}
    """
    ndim = len(input.shape)
    if ndim < 2:
        raise ArgumentError(f"[dropout2d] expected shape (N, C, ...), got {input.shape}")
    inner = math.prod(input.shape[1 if ndim == 3 else 2 :])
    return _dropout("dropout2d", input, p, training, max(inner, 1), inplace)


@export("F")
def dropout1d(input: T, p: float = 0.5, training: bool = True, inplace: bool = False) -> T:
    """:func:`dropout2d` for channels of shape (N, C, L) or (C, L).

    Raises:
        ArgumentError: `p` is outside [0, 1], or the number of axes does not fit.

    Example:
        >>> import dl4all as dl
        >>> x = dl.nn.functional.dropout1d(dl.ones(8, 5))
        >>> {len(set(channel.tolist())) for channel in x}
        {1}
    """
    return _channel_dropout("dropout1d", input, p, training, 1, inplace)


@export("F")
def dropout3d(input: T, p: float = 0.5, training: bool = True, inplace: bool = False) -> T:
    """:func:`dropout2d` for channels of shape (N, C, D, H, W) or (C, D, H, W).

    Raises:
        ArgumentError: `p` is outside [0, 1], or the number of axes does not fit.

    Example:
        >>> import dl4all as dl
        >>> x = dl.nn.functional.dropout3d(dl.ones(8, 2, 2, 2))
        >>> {len(set(channel.flatten().tolist())) for channel in x}
        {1}
    """
    return _channel_dropout("dropout3d", input, p, training, 3, inplace)


def _channel_dropout(name: str, input: T, p: float, training: bool, axes: int, inplace: bool) -> T:
    """Dropout of channels, which have `axes` axes."""
    if len(input.shape) not in (axes + 1, axes + 2):
        raise ArgumentError(f"[{name}] expected {axes + 1} or {axes + 2} axes, got shape {input.shape}")
    return _dropout(name, input, p, training, max(math.prod(input.shape[-axes:]), 1), inplace)


@export("F")
def alpha_dropout(input: Array, p: float = 0.5, training: bool = False, inplace: bool = False) -> Array:
    """Alpha dropout (Klambauer et al., arXiv:1706.02515), which keeps a mean of 0 and a variance of 1.

    In training, random elements become the limit of SELU at minus infinity; all elements are then scaled and
    shifted.

    Args:
        input: floats of any shape.
        p: the probability with which an element is replaced.
        training: without it, the input is returned.
        inplace: write the result into the input, and return that.

    Raises:
        ArgumentError: `p` is outside [0, 1].

    Example:
        >>> import dl4all as dl
        >>> len(set(dl.nn.functional.alpha_dropout(dl.ones(1000), 0.5, training=True).tolist()))
        2
    """
    return _alpha_dropout("alpha_dropout", input, p, training, input.shape, inplace)


@export("F")
def feature_alpha_dropout(
    input: Array, p: float = 0.5, training: bool = False, inplace: bool = False
) -> Array:
    """:func:`alpha_dropout` of whole channels, the entries of axis 1.

    Raises:
        ArgumentError: `p` is outside [0, 1], or there are fewer than two axes.

    Example:
        >>> import dl4all as dl
        >>> x = dl.nn.functional.feature_alpha_dropout(dl.ones(2, 8, 5), 0.5, training=True)
        >>> {len(set(channel.tolist())) for image in x for channel in image}
        {1}
    """
    if training and p and len(input.shape) < 2:
        raise ArgumentError(f"[feature_alpha_dropout] expected shape (N, C, ...), got {input.shape}")
    shape = (*input.shape[:2], *(1,) * (len(input.shape) - 2))
    return _alpha_dropout("feature_alpha_dropout", input, p, training, shape, inplace)


def _alpha_dropout(name: str, input: Any, p: float, training: bool, mask_shape: Shape, inplace: bool) -> Any:
    """Alpha dropout with a mask that broadcasts to the input.

    Raises:
        ArgumentError: `p` is outside [0, 1].
    """
    check_probability(name, p)
    if not training or p == 0:
        return input
    if p == 1:
        return (in_place(mul) if inplace else mul)(input, 0.0)
    mask = empty(type(input).result_class, mask_shape, input.dtype, input.device)
    bernoulli_(mask, 1 - p)
    scale = 1 / math.sqrt((SELU_MINIMUM * SELU_MINIMUM * p + 1) * (1 - p))
    shift = (1 - mask) * (SELU_MINIMUM * scale) - SELU_MINIMUM * scale * p
    if inplace:
        return in_place(add)(in_place(mul)(input, mask * scale), shift)
    return input * (mask * scale) + shift


def _dropout(name: str, input: T, p: float, training: bool, inner: int, inplace: bool) -> T:
    """Dropout of groups of `inner` neighbouring elements.

    Raises:
        ArgumentError: `p` is outside [0, 1].
    """
    check_probability(name, p)
    if not training or p == 0:
        return input
    if isinstance(input, BatchedTensorBase):
        in_samples: Callable[..., Any] = in_place(_dropout_in_samples) if inplace else _dropout_in_samples
        return cast(T, in_samples(input, float(p), inner))
    seed, offset = default_generator().draw(ceil_div(input.numel(), inner))
    drop: Callable[..., Any] = in_place(random_dropout) if inplace else random_dropout
    return cast(T, drop(input, float(p), seed=seed, offset=offset, inner=inner))


def _dropout_in_samples(input: T, p: float, inner: int) -> T:
    """Dropout within ``vmap``, with random numbers for every sample."""
    levels, (_, scale) = levels_of([input]), threshold_and_scale(p)
    ones = new_like(input, input.shape)
    fill_with(ones, 1)
    every = unwrap(ones, levels)
    seed, offset = default_generator().draw(ceil_div(every.numel(), inner), every_sample=True)
    kept = wrap(random_dropout(every, p, seed=seed, offset=offset, inner=inner), levels)
    return where(gt(kept, 0), mul(input, scale), 0.0)  # type: ignore[no-any-return]
