"""The functions behind the layers, where PyTorch has them."""

# Their types are in the stub, functional.pyi.
from __future__ import annotations

from dl4all import ops
from dl4all.ops.core.exports import exported

_NAMES = {name: one.function for name, one in exported("F")}
_NAMES |= {f"{name}_": ops.in_place(one.function) for name, one in exported("F_")}
__all__ = sorted(_NAMES)
globals().update(_NAMES)
