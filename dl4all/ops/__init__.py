"""Every op, declared once: NumPy body, kernel, signature, documentation and where it appears in one place.

Imports between the families point down one list, ``LAYERS`` in tests/test_imports.py. The lists of names are
written by tools/exports.py.
"""

from __future__ import annotations

from dl4all.ops import (
    activation,
    attention,
    composite,
    conv,
    elementwise,
    indexing,
    linalg,
    loss,
    memory,
    normalization,
    pool,
    random,
    reduce,
    rnn,
)
from dl4all.ops.activation import *
from dl4all.ops.attention import *
from dl4all.ops.composite import *
from dl4all.ops.conv import *
from dl4all.ops.core.op import REGISTRY as REGISTRY
from dl4all.ops.core.op import all_shaders as all_shaders
from dl4all.ops.elementwise import *
from dl4all.ops.indexing import *
from dl4all.ops.linalg import *
from dl4all.ops.loss import *
from dl4all.ops.memory import *
from dl4all.ops.memory import bfloat16 as _bfloat16  # noqa: F401  # adds its shaders to those of all ops
from dl4all.ops.normalization import *
from dl4all.ops.pool import *
from dl4all.ops.random import *
from dl4all.ops.reduce import *
from dl4all.ops.rnn import *

__all__ = [
    "REGISTRY",
    *activation.__all__,
    *attention.__all__,
    *composite.__all__,
    *conv.__all__,
    *elementwise.__all__,
    *indexing.__all__,
    *linalg.__all__,
    *loss.__all__,
    *memory.__all__,
    *normalization.__all__,
    *pool.__all__,
    *random.__all__,
    *reduce.__all__,
    *rnn.__all__,
    "all_shaders",
]
