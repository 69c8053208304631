"""Copies, views and conversions between dtypes."""

from __future__ import annotations

# Written by tools/exports.py from the @export declarations in dl4all/ops; run it after changing them.
from dl4all.ops.memory.conversion import cast as cast
from dl4all.ops.memory.parts import diagonal as diagonal
from dl4all.ops.memory.parts import index as index
from dl4all.ops.memory.parts import index_backward as index_backward
from dl4all.ops.memory.parts import narrow as narrow
from dl4all.ops.memory.parts import select as select
from dl4all.ops.memory.views import broadcast_to as broadcast_to
from dl4all.ops.memory.views import contiguous as contiguous
from dl4all.ops.memory.views import expand as expand
from dl4all.ops.memory.views import expand_as as expand_as
from dl4all.ops.memory.views import flatten as flatten
from dl4all.ops.memory.views import movedim as moveaxis
from dl4all.ops.memory.views import movedim as movedim
from dl4all.ops.memory.views import permute as permute
from dl4all.ops.memory.views import reshape as reshape
from dl4all.ops.memory.views import reshape_as as reshape_as
from dl4all.ops.memory.views import squeeze as squeeze
from dl4all.ops.memory.views import swapaxes as swapaxes
from dl4all.ops.memory.views import transpose as swapdims
from dl4all.ops.memory.views import transpose as transpose
from dl4all.ops.memory.views import unflatten as unflatten
from dl4all.ops.memory.views import unsqueeze as unsqueeze
from dl4all.ops.memory.views import view as view
from dl4all.ops.memory.views import view_as as view_as

__all__ = [
    "broadcast_to",
    "cast",
    "contiguous",
    "diagonal",
    "expand",
    "expand_as",
    "flatten",
    "index",
    "index_backward",
    "moveaxis",
    "movedim",
    "narrow",
    "permute",
    "reshape",
    "reshape_as",
    "select",
    "squeeze",
    "swapaxes",
    "swapdims",
    "transpose",
    "unflatten",
    "unsqueeze",
    "view",
    "view_as",
]
