"""Small calls of functions that rearrange and index elements, as in ``composite_cases``."""

from __future__ import annotations

from tests.support.composite_cases import MASK, SIGNAL, Calls, F, X, call, in_place, ints, same_calls

REARRANGED: Calls = {
    **same_calls("adjoint contiguous diag diag_embed diagflat diagonal flatten fliplr flipud rot90 t"),
    "flip": (call(lambda x: F.flip(x, 1)),),
    "as_strided": (call(lambda x: F.as_strided(x, (2, 3), (1, 2), 1)),),
    **{name: (call(getattr(F, name), (), (3,)),) for name in ("atleast_1d", "atleast_2d", "atleast_3d")},
    **same_calls("block_diag", (2, 3), (1, 2)),
    **same_calls("broadcast_tensors", X, (5,)),
    **same_calls("cartesian_prod", (2,), (3,)),
    **{
        name: (call(lambda *o, n=name: getattr(F, n)(o), X, (2, 5)),)
        for name in ("cat", "concat", "concatenate", "vstack")
    },
    **{
        name: (call(lambda *o, n=name: getattr(F, n)(o), X, X),)
        for name in ("column_stack", "dstack", "hstack", "stack")
    },
    "broadcast_to": (call(lambda x: F.broadcast_to(x, (2, 3, 5))),),
    "expand": (call(lambda x: F.expand(x, 2, 3, 5)),),
    "expand_as": (call(lambda x, y: F.expand_as(x, y), (5,), X),),
    "view_as": (call(F.view_as, X, (5, 3)),),
    "reshape_as": (call(F.reshape_as, X, (5, 3)),),
    "chunk": (call(lambda x: F.chunk(x, 2, 1)),),
    "split": (call(lambda x: F.split(x, 2, 1)),),
    "tensor_split": (call(lambda x: F.tensor_split(x, 2, 1)),),
    "unbind": (call(F.unbind),),
    "hsplit": (call(lambda x: F.hsplit(x, 2), (3, 4)),),
    "vsplit": (call(lambda x: F.vsplit(x, 2), (4, 3)),),
    "dsplit": (call(lambda x: F.dsplit(x, 2), (1, 3, 4)),),
    "channel_shuffle": (call(lambda x: F.channel_shuffle(x, 2), (1, 4, 2, 1)),),
    "pixel_shuffle": (call(lambda x: F.pixel_shuffle(x, 2), (1, 4, 2, 1)),),
    "pixel_unshuffle": (call(lambda x: F.pixel_unshuffle(x, 2), (1, 1, 4, 2)),),
    "moveaxis": (call(lambda x: F.moveaxis(x, 0, 1)),),
    "movedim": (call(lambda x: F.movedim(x, 0, 1)),),
    **same_calls("swapdims transpose", dim0=0, dim1=1),
    **same_calls("swapaxes", axis0=0, axis1=1),
    "permute": (call(lambda x: F.permute(x, 1, 0)),),
    "narrow": (call(lambda x: F.narrow(x, 1, 1, 3)),),
    "select": (call(lambda x: F.select(x, 1, 2)),),
    "index": (call(lambda x: F.index(x, (1, slice(0, 4, 2)))),),
    "getitem": (call(lambda x: F.getitem(x, (ints(2, 0, 2), slice(None)))),),
    "repeat": (call(lambda x: F.repeat(x, 2, 1)),),
    "tile": (call(lambda x: F.tile(x, 2)),),
    "repeat_interleave": (call(lambda x: F.repeat_interleave(x, 2, 1)),),
    "reshape": (call(lambda x: F.reshape(x, 5, 3)),),
    "view": (call(lambda x: F.view(x, 5, 3)),),
    "roll": (call(lambda x: F.roll(x, 2, 1)),),
    "squeeze": (call(F.squeeze, (3, 1, 2)),),
    "unsqueeze": (call(lambda x: F.unsqueeze(x, 1)),),
    "unflatten": (call(lambda x: F.unflatten(x, 1, (2, 2)), (3, 4)),),
    "pad": (
        *(
            call(lambda x, m=mode: F.pad(x, (1, 2), m), SIGNAL)
            for mode in ("constant", "reflect", "replicate", "circular")
        ),
    ),
    "vander": (call(F.vander, (4,)),),
    "window": (call(lambda x: F.window(x, 1, 3, 1)),),
}

INDEXED: Calls = {
    "diagonal_scatter": (call(F.diagonal_scatter, X, (3,)),),
    "select_scatter": (call(lambda x, y: F.select_scatter(x, y, 1, 2), X, (3,)),),
    "slice_scatter": (call(lambda x, y: F.slice_scatter(x, y, 1, 1, 5, 2), X, (3, 2)),),
    "gather": (call(lambda x: F.gather(x, 1, ints([1, 4], [0, 0], [3, 2]))),),
    "take": (call(lambda x: F.take(x, ints(3, 14, 3))),),
    "take_along_dim": (call(lambda x: F.take_along_dim(x, ints([1, 4], [0, 0], [3, 2]), 1)),),
    "index_select": (call(lambda x: F.index_select(x, 1, ints(4, 0, 0))),),
    "index_add": (call(lambda x, y: F.index_add(x, 1, ints(4, 0, 0), y, alpha=2.0), X, (3, 3)),),
    "index_copy": (call(lambda x, y: F.index_copy(x, 1, ints(4, 0, 1), y), X, (3, 3)),),
    "index_fill": (call(lambda x: F.index_fill(x, 1, ints(4, 0), 2.0)),),
    "index_put": (
        call(lambda x, y: F.index_put(x, (ints(2, 0), ints(1, 4)), y), X, (2,)),
        call(lambda x, y: F.index_put(x, (ints(2, 2), ints(1, 1)), y, accumulate=True), X, (2,)),
    ),
    "masked_scatter": (call(lambda x, y: F.masked_scatter(x, MASK, y), X, (11,)),),
    "masked_select": (call(lambda x: F.masked_select(x, MASK)),),
    "scatter": (call(lambda x, y: F.scatter(x, 1, ints([1, 4], [0, 2], [3, 2]), y), X, (3, 2)),),
    "scatter_add": (call(lambda x, y: F.scatter_add(x, 1, ints([1, 4], [0, 0], [3, 2]), y), X, (3, 2)),),
    "scatter_reduce": (
        *(
            call(lambda x, y, r=reduce: F.scatter_reduce(x, 1, ints([1, 4], [0, 0], [3, 2]), y, r), X, (3, 2))
            for reduce in ("sum", "mean", "prod", "amax", "amin")
        ),
        call(
            lambda x, y: F.scatter_reduce(x, 1, ints([1, 1], [0, 0], [3, 2]), y, "prod", include_self=False),
            X,
            (3, 2),
        ),
    ),
    "embedding": (call(lambda w: F.embedding(ints([4, 0], [1, 1]), w), (5, 2)),),
    "embedding_bag": (
        *(
            call(lambda w, m=mode: F.embedding_bag(ints([4, 0], [1, 2]), w, mode=m), (5, 2))
            for mode in ("sum", "mean", "max")
        ),
        call(
            lambda w, p: F.embedding_bag(ints([4, 0], [1, 1]), w, mode="sum", per_sample_weights=p),
            (5, 2),
            (2, 2),
        ),
    ),
    "copy_": (call(in_place(F.copy_), X, (5,)),),
    "fill_": (call(lambda x: x * x + in_place(F.fill_)(x, 2.0)),),
    "zero_": (call(lambda x: x * x + in_place(F.zero_)(x)),),
    "setitem": (call(in_place(lambda x, y: F.setitem(x, (slice(None), 2), y)), X, (3,)),),
}
