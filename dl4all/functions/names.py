"""Functions of tensors at the top level, as ``dl.NAME``; their types are in the stub, names.pyi."""

from __future__ import annotations

import dl4all.ops  # noqa: F401 - which imports all that is declared
from dl4all.ops.core.arguments.numpy_names import with_numpy_names
from dl4all.ops.core.exports import exported
from dl4all.ops.indexing.out_argument import with_out

_NAMES = {name: (with_out if one.out else with_numpy_names)(one.function) for name, one in exported("dl")}
__all__ = sorted(_NAMES)
globals().update(_NAMES)
