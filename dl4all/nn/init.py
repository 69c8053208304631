"""Initial values of parameters, drawn on the host and thus the same on every device."""

from __future__ import annotations

import math

import numpy as np

from dl4all.ops.base import Shape
from dl4all.tensor.creation import from_numpy, uniform
from dl4all.tensor.tensor import Tensor


def fan_in_and_out(shape: Shape) -> tuple[int, int]:
    """How many inputs and outputs one element of a weight of shape (out, in, ...) connects.

    >>> fan_in_and_out((64, 3, 7, 7))
    (147, 3136)
    """
    receptive = math.prod(shape[2:])
    return shape[1] * receptive, shape[0] * receptive


def kaiming_uniform(shape: Shape, a: float = math.sqrt(5)) -> Tensor:
    """Uniform values whose variance keeps that of the activations, on the CPU.

    The bound is ``sqrt(6 / ((1 + a^2) fan_in))`` (He et al., arXiv:1502.01852, equation 14); with
    PyTorch's default ``a = sqrt(5)`` it is ``1 / sqrt(fan_in)``.
    """
    fan_in, _ = fan_in_and_out(shape)
    bound = math.sqrt(6 / ((1 + a * a) * fan_in)) if fan_in else 0.0
    return from_numpy(uniform(shape, -bound, bound))


def fan_in_uniform(shape: Shape, fan_in: int) -> Tensor:
    """Uniform values in +-``1 / sqrt(fan_in)``, PyTorch's initial bias, on the CPU."""
    bound = 1 / math.sqrt(fan_in) if fan_in else 0.0
    return from_numpy(uniform(shape, -bound, bound))


def zeros(shape: Shape) -> Tensor:
    return from_numpy(np.zeros(shape, np.float32))


def ones(shape: Shape) -> Tensor:
    return from_numpy(np.ones(shape, np.float32))
