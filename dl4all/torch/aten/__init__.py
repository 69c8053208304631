"""The kernels of ATen's ops, by family. Importing this package registers all of them."""

from __future__ import annotations

from dl4all.torch.aten import activation, factories, indexing, joining, memory, pointwise, random, views

__all__ = ["activation", "factories", "indexing", "joining", "memory", "pointwise", "random", "views"]
