"""Where an operand's elements lie, put in order for kernels that want them so."""

from __future__ import annotations

from dl4all.ops.arithmetic import clone
from dl4all.ops.base import TensorBase


def contiguous(tensor: TensorBase) -> TensorBase:
    """The tensor itself if its elements lie in row-major order, else a copy in which they do."""
    if tensor.is_contiguous():
        return tensor
    copied: TensorBase = clone(tensor)
    return copied
