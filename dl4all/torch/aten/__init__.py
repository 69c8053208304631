"""The kernels of ATen's ops, by family. Importing this package registers all of them."""

from __future__ import annotations

from dl4all.torch.aten import activation, loss, memory, normalization, pointwise, reduction, softmax, views

__all__ = ["activation", "loss", "memory", "normalization", "pointwise", "reduction", "softmax", "views"]
