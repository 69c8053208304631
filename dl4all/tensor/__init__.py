"""Tensors: what people hold in their hands."""

from __future__ import annotations

from dl4all.tensor.creation import empty, from_numpy, full, manual_seed, ones, rand, randn, tensor, zeros
from dl4all.tensor.selection import TopK, topk
from dl4all.tensor.tensor import Tensor

__all__ = [
    "Tensor",
    "TopK",
    "empty",
    "from_numpy",
    "full",
    "manual_seed",
    "ones",
    "rand",
    "randn",
    "tensor",
    "topk",
    "zeros",
]
