"""Power-average pooling (LPPool)."""

from __future__ import annotations

import math
from typing import Any

from dl4all.errors import ArgumentError
from dl4all.ops.conv.window import sizes
from dl4all.ops.core.exports import export
from dl4all.ops.core.tensor_base import Array
from dl4all.ops.elementwise.arithmetic import mul
from dl4all.ops.elementwise.comparison import eq
from dl4all.ops.elementwise.logic import where
from dl4all.ops.elementwise.transcendental import pow
from dl4all.ops.pool.avg_pool import avg_pool2d
from dl4all.ops.pool.pool1d import avg_pool1d, one_number
from dl4all.ops.pool.pool3d import avg_pool3d
from dl4all.ops.pool.windows import Sizes


@export("F")
def lp_pool1d(
    input: Array,
    norm_type: float,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    ceil_mode: bool = False,
) -> Array:
    """The p-norm of each window along the last axis of (N, C, L) or (C, L).

    It is ``sum(x ** p) ** (1 / p)``.

    Args:
        input: floats.
        norm_type: the power p, above 0; odd and fractional powers need elements that are not negative.
        kernel_size, stride, ceil_mode: as for :func:`avg_pool1d`.

    Raises:
        ShapeError, ArgumentError: as for :func:`avg_pool1d`.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.functional.lp_pool1d(dl.tensor([[[3.0, 4.0]]]), 2, 2).tolist()
        [[[5.0]]]
    """
    kernel = one_number("lp_pool1d", kernel_size)
    means = avg_pool1d(pow(input, norm_type), kernel, stride, 0, ceil_mode)
    return _root(means, kernel, norm_type)


@export("F")
def lp_pool2d(
    input: Array,
    norm_type: float,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    ceil_mode: bool = False,
) -> Array:
    """:func:`lp_pool1d` of images, with windows of height and width.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.functional.lp_pool2d(dl.tensor([[[[3.0, 4.0]]]]), 2, (1, 2)).tolist()
        [[[[5.0]]]]
    """
    height, width = sizes("lp_pool2d", "kernel_size", kernel_size, 1, 2)
    means = avg_pool2d(pow(input, norm_type), (height, width), stride, 0, ceil_mode)
    return _root(means, height * width, norm_type)


@export("F")
def lp_pool3d(
    input: Array,
    norm_type: float,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    ceil_mode: bool = False,
) -> Array:
    """:func:`lp_pool1d` of volumes, with windows of depth, height and width.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.functional.lp_pool3d(dl.ones(1, 1, 2, 2, 2), 1, 2).item()
        8.0
    """
    depth, height, width = sizes("lp_pool3d", "kernel_size", kernel_size, 1, 3)
    means = avg_pool3d(pow(input, norm_type), (depth, height, width), stride, 0, ceil_mode)
    return _root(means, depth * height * width, norm_type)


def _root(means: Any, count: int, power: float) -> Any:
    if not 0 < power < math.inf:
        raise ArgumentError(
            f"[lp_pool] expected a power above 0, got {power}; for the largest there is max_pool"
        )
    total = mul(means, count)
    empty = eq(total, 0)  # there the slope of a root is infinite
    return where(empty, 0.0, pow(where(empty, 1.0, total), 1 / power))
