"""The kernels of ATen's ops, by family. Importing this package registers all of them."""

from __future__ import annotations

from dl4all.torch.aten import (
    activation,
    convolution,
    interpolation,
    linalg,
    memory,
    pointwise,
    pooling,
    sliding_windows,
    views,
)

__all__ = [
    "activation",
    "convolution",
    "interpolation",
    "linalg",
    "memory",
    "pointwise",
    "pooling",
    "sliding_windows",
    "views",
]
