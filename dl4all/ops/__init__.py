"""Every op, declared once: NumPy body, kernel, signature and documentation in one place."""

from __future__ import annotations

from dl4all.ops.activation import relu
from dl4all.ops.arithmetic import add, clone, div, mul, neg, sub
from dl4all.ops.convolution import conv2d
from dl4all.ops.linalg import linear, matmul
from dl4all.ops.memory import contiguous
from dl4all.ops.normalization import batch_norm, softmax
from dl4all.ops.op import REGISTRY, all_shaders
from dl4all.ops.pooling import adaptive_avg_pool2d, max_pool2d

__all__ = [
    "REGISTRY",
    "adaptive_avg_pool2d",
    "add",
    "all_shaders",
    "batch_norm",
    "clone",
    "contiguous",
    "conv2d",
    "div",
    "linear",
    "matmul",
    "max_pool2d",
    "mul",
    "neg",
    "relu",
    "softmax",
    "sub",
]
