"""Reading and writing by indices, concatenation, padding, changes in place."""

from __future__ import annotations

# Written by tools/exports.py from the @export declarations in dl4all/ops; run it after changing them.
from dl4all.ops.indexing.advanced_indexing import getitem as getitem
from dl4all.ops.indexing.assignment import copy_ as copy_
from dl4all.ops.indexing.assignment import fill_ as fill_
from dl4all.ops.indexing.assignment import setitem as setitem
from dl4all.ops.indexing.assignment import zero_ as zero_
from dl4all.ops.indexing.concatenation import cat as cat
from dl4all.ops.indexing.concatenation import cat as concat
from dl4all.ops.indexing.concatenation import cat as concatenate
from dl4all.ops.indexing.concatenation import chunk as chunk
from dl4all.ops.indexing.concatenation import hstack as hstack
from dl4all.ops.indexing.concatenation import split as split
from dl4all.ops.indexing.concatenation import stack as stack
from dl4all.ops.indexing.concatenation import unbind as unbind
from dl4all.ops.indexing.concatenation import vstack as row_stack
from dl4all.ops.indexing.concatenation import vstack as vstack
from dl4all.ops.indexing.embeddings import one_hot as one_hot
from dl4all.ops.indexing.gather_scatter import gather as gather
from dl4all.ops.indexing.gather_scatter import index_add as index_add
from dl4all.ops.indexing.gather_scatter import index_select as index_select
from dl4all.ops.indexing.gather_scatter import masked_select as masked_select
from dl4all.ops.indexing.gather_scatter import nonzero as nonzero
from dl4all.ops.indexing.gather_scatter import scatter_add as scatter_add
from dl4all.ops.indexing.gather_scatter import take as take
from dl4all.ops.indexing.gather_scatter import take_along_dim as take_along_dim
from dl4all.ops.indexing.inplace import in_place as in_place
from dl4all.ops.indexing.padding import pad as pad
from dl4all.ops.indexing.repeat_and_flip import flip as flip
from dl4all.ops.indexing.repeat_and_flip import repeat as repeat
from dl4all.ops.indexing.repeat_and_flip import repeat_interleave as repeat_interleave
from dl4all.ops.indexing.repeat_and_flip import roll as roll
from dl4all.ops.indexing.repeat_and_flip import tile as tile
from dl4all.ops.indexing.rows import put_rows as put_rows
from dl4all.ops.indexing.rows import take_rows as take_rows
from dl4all.ops.indexing.rows import take_rows_backward as take_rows_backward
from dl4all.ops.indexing.triangular import diag as diag
from dl4all.ops.indexing.triangular import diag_embed as diag_embed
from dl4all.ops.indexing.triangular import tril as tril
from dl4all.ops.indexing.triangular import triu as triu

__all__ = [
    "cat",
    "chunk",
    "concat",
    "concatenate",
    "copy_",
    "diag",
    "diag_embed",
    "fill_",
    "flip",
    "gather",
    "getitem",
    "hstack",
    "in_place",
    "index_add",
    "index_select",
    "masked_select",
    "nonzero",
    "one_hot",
    "pad",
    "put_rows",
    "repeat",
    "repeat_interleave",
    "roll",
    "row_stack",
    "scatter_add",
    "setitem",
    "split",
    "stack",
    "take",
    "take_along_dim",
    "take_rows",
    "take_rows_backward",
    "tile",
    "tril",
    "triu",
    "unbind",
    "vstack",
    "zero_",
]
