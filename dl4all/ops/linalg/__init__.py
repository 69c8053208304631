"""Products of vectors, matrices and tensors."""

from __future__ import annotations

from dl4all.ops.linalg.blas import addbmm as addbmm
from dl4all.ops.linalg.blas import addmm as addmm
from dl4all.ops.linalg.blas import addmv as addmv
from dl4all.ops.linalg.blas import addr as addr
from dl4all.ops.linalg.blas import baddbmm as baddbmm
from dl4all.ops.linalg.blas import bmm as bmm

# Written by tools/exports.py from the @export declarations in dl4all/ops; run it after changing them.
from dl4all.ops.linalg.blas import mm as mm
from dl4all.ops.linalg.blas import mv as mv
from dl4all.ops.linalg.blas import outer as ger
from dl4all.ops.linalg.blas import outer as outer
from dl4all.ops.linalg.contractions import chain_matmul as chain_matmul
from dl4all.ops.linalg.contractions import cross as cross
from dl4all.ops.linalg.contractions import inner as inner
from dl4all.ops.linalg.contractions import kron as kron
from dl4all.ops.linalg.contractions import tensordot as tensordot
from dl4all.ops.linalg.contractions import vdot as vdot
from dl4all.ops.linalg.distances import cdist as cdist
from dl4all.ops.linalg.distances import dist as dist
from dl4all.ops.linalg.distances import pairwise_distance as pairwise_distance
from dl4all.ops.linalg.distances import pdist as pdist
from dl4all.ops.linalg.dot_product import dot as dot
from dl4all.ops.linalg.einstein_summation import einsum as einsum
from dl4all.ops.linalg.matrix_product import linear as linear
from dl4all.ops.linalg.matrix_product import matmul as matmul

__all__ = [
    "addbmm",
    "addmm",
    "addmv",
    "addr",
    "baddbmm",
    "bmm",
    "cdist",
    "chain_matmul",
    "cross",
    "dist",
    "dot",
    "einsum",
    "ger",
    "inner",
    "kron",
    "linear",
    "matmul",
    "mm",
    "mv",
    "outer",
    "pairwise_distance",
    "pdist",
    "tensordot",
    "vdot",
]
