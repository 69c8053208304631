"""Dropout of whole channels, dropout that keeps mean and variance, and random choices with a gradient."""

from __future__ import annotations

import math
from typing import Any

from dl4all.errors import ArgumentError
from dl4all.ops.core.exports import export
from dl4all.ops.core.op import empty
from dl4all.ops.core.tensor_base import Shape
from dl4all.ops.elementwise.arithmetic import true_divide
from dl4all.ops.elementwise.comparison import clamp_min
from dl4all.ops.elementwise.transcendental import log, log1p
from dl4all.ops.indexing.gather_scatter import scatter
from dl4all.ops.random import generator
from dl4all.ops.random.generator import _dropped
from dl4all.ops.reduce.extrema import argmax
from dl4all.ops.reduce.softmax_function import softmax

# What SELU gives for minus infinity.
LOWEST = -1.7580993408473766


@export("F")
def dropout1d(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    """In training, zeros in the place of random channels of (N, C, L) or (C, L), as :func:`dropout2d`.

    Raises:
        ArgumentError: `p` is no probability, or there is another number of axes.

    Example:
        >>> import dl4all as dl
        >>> x = dl.nn.functional.dropout1d(dl.ones(8, 5))
        >>> {len(set(channel.tolist())) for channel in x}
        {1}
    """
    return _of_channels("dropout1d", input, p, training, 1)


@export("F")
def dropout3d(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    """In training, zeros in the place of random channels of (N, C, D, H, W) or (C, D, H, W).

    Raises:
        ArgumentError: `p` is no probability, or there is another number of axes.

    Example:
        >>> import dl4all as dl
        >>> x = dl.nn.functional.dropout3d(dl.ones(8, 2, 2, 2))
        >>> {len(set(channel.flatten().tolist())) for channel in x}
        {1}
    """
    return _of_channels("dropout3d", input, p, training, 3)


def _of_channels(name: str, input: Any, p: float, training: bool, axes: int) -> Any:
    if len(input.shape) not in (axes + 1, axes + 2):
        raise ArgumentError(f"[{name}] expected {axes + 1} or {axes + 2} axes, got shape {input.shape}")
    return _dropped(name, input, p, training, max(math.prod(input.shape[-axes:]), 1))


@export("F")
def alpha_dropout(input: Any, p: float = 0.5, training: bool = False, inplace: bool = False) -> Any:
    """In training, what SELU gives for minus infinity in the place of random elements.

    All are then scaled and moved so that a mean of 0 and a variance of 1 stay. Klambauer et al.,
    arXiv:1706.02515.

    Args:
        input: floats of any shape.
        p: the probability with which an element is replaced.
        training: without it the input is returned as it is.
        inplace: is taken as PyTorch has it; the result has memory of its own all the same.

    Raises:
        ArgumentError: `p` is no probability.

    Example:
        >>> import dl4all as dl
        >>> len(set(dl.nn.functional.alpha_dropout(dl.ones(1000), 0.5, training=True).tolist()))
        2
    """
    return _alpha("alpha_dropout", input, p, training, input.shape)


@export("F")
def feature_alpha_dropout(input: Any, p: float = 0.5, training: bool = False, inplace: bool = False) -> Any:
    """:func:`alpha_dropout` of whole channels, which are axis 1.

    Raises:
        ArgumentError: `p` is no probability, or there are less than two axes.

    Example:
        >>> import dl4all as dl
        >>> x = dl.nn.functional.feature_alpha_dropout(dl.ones(2, 8, 5), 0.5, training=True)
        >>> {len(set(channel.tolist())) for image in x for channel in image}
        {1}
    """
    if len(input.shape) < 2:
        raise ArgumentError(f"[feature_alpha_dropout] expected shape (N, C, ...), got {input.shape}")
    shape = (*input.shape[:2], *(1,) * (len(input.shape) - 2))
    return _alpha("feature_alpha_dropout", input, p, training, shape)


def _alpha(name: str, input: Any, p: float, training: bool, shape: Shape) -> Any:
    if not 0 <= p <= 1:
        raise ArgumentError(f"[{name}] expected a probability from 0 to 1, got {p}")
    if not training or p == 0:
        return input
    if p == 1:
        return input * 0.0
    kept = empty(type(input).result_class, shape, input.dtype, input.device)
    generator.bernoulli_(kept, 1 - p)
    scale = 1 / math.sqrt((LOWEST * LOWEST * p + 1) * (1 - p))
    return input * (kept * scale) + ((1 - kept) * (LOWEST * scale) - LOWEST * scale * p)


@export("F")
def gumbel_softmax(logits: Any, tau: float = 1, hard: bool = False, eps: float = 1e-10, dim: int = -1) -> Any:
    """A random choice among classes that can be differentiated: softmax of scores with Gumbel noise.

    Jang et al., arXiv:1611.01144.

    Args:
        logits: scores, floats.
        tau: the temperature: the smaller, the closer to a choice of one.
        hard: 1 for the class chosen and 0 for the others, with the gradient of the soft choice.
        eps: has no effect, as in PyTorch.
        dim: the axis of the classes.

    Raises:
        ArgumentError: there is no such axis.

    Example:
        >>> import dl4all as dl
        >>> sorted(dl.nn.functional.gumbel_softmax(dl.zeros(3), hard=True).tolist())
        [0.0, 0.0, 1.0]
    """
    made = empty(type(logits).result_class, logits.shape, logits.dtype, logits.device)
    # The smallest number that the generator gives beside 0 is 2^-24; 0 would become an infinite score.
    waited = clamp_min(-log1p(-generator.uniform_(made)), 2.0**-25)
    soft = softmax(true_divide(logits - log(waited), tau), dim)
    if not hard:
        return soft
    chosen = argmax(soft, dim, True)
    return scatter(soft.detach() * 0.0, dim, chosen, 1.0) - soft.detach() + soft
