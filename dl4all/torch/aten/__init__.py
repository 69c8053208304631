"""The kernels of ATen's ops, by family. Importing this package registers all of them."""

from __future__ import annotations

from dl4all.torch.aten import (
    activation,
    comparison,
    foreach,
    fused_optimizers,
    memory,
    pointwise,
    views,
)

__all__ = ["activation", "comparison", "foreach", "fused_optimizers", "memory", "pointwise", "views"]
