"""The methods that move elements: views and parts, changes in place, copies for others."""

from __future__ import annotations

from dl4all import ops
from dl4all.ops.core.tensor_base import TensorBase
from dl4all.tensor import beside, interop


class Moving(TensorBase):
    """What :class:`dl4all.Tensor` has beside arithmetic and gradients."""

    __slots__ = ()

    # Views

    broadcast_to = ops.broadcast_to
    diagonal = ops.diagonal
    expand_as = ops.expand_as
    movedim = ops.movedim
    moveaxis = ops.movedim
    narrow = ops.narrow
    reshape_as = ops.reshape_as
    select = ops.select
    swapaxes = ops.swapaxes
    swapdims = ops.swapaxes
    unflatten = ops.unflatten
    unfold = ops.window
    view = ops.view
    view_as = ops.view_as

    # Parts, joined and picked

    argsort = ops.argsort
    bincount = ops.bincount
    chunk = ops.chunk
    diag = ops.diag
    diag_embed = ops.diag_embed
    flip = ops.flip
    gather = ops.gather
    index_add = ops.index_add
    index_select = ops.index_select
    masked_select = ops.masked_select
    nonzero = ops.nonzero
    repeat = ops.repeat
    repeat_interleave = ops.repeat_interleave
    roll = ops.roll
    scatter = ops.scatter
    scatter_add = ops.scatter_add
    sort = ops.sort
    split = ops.split
    take = ops.take
    take_along_dim = ops.take_along_dim
    tile = ops.tile
    topk = ops.topk
    tril = ops.tril
    triu = ops.triu
    unbind = ops.unbind
    unique = ops.unique

    # Changes in place

    __setitem__ = ops.setitem
    add_ = __iadd__ = ops.in_place("add")
    copy_ = ops.copy_
    div_ = __itruediv__ = ops.in_place("div")
    fill_ = ops.fill_
    mul_ = __imul__ = ops.in_place("mul")
    sub_ = __isub__ = ops.in_place("sub")
    zero_ = ops.zero_

    abs_ = ops.in_place("abs")
    addcdiv_ = ops.in_place("addcdiv")
    addcmul_ = ops.in_place("addcmul")
    bitwise_and_ = ops.in_place("bitwise_and")
    bitwise_not_ = ops.in_place("bitwise_not")
    bitwise_or_ = ops.in_place("bitwise_or")
    bitwise_xor_ = ops.in_place("bitwise_xor")
    ceil_ = ops.in_place("ceil")
    clamp_ = ops.in_place("clamp")
    clamp_max_ = ops.in_place("clamp_max")
    clamp_min_ = ops.in_place("clamp_min")
    cos_ = ops.in_place("cos")
    erf_ = ops.in_place("erf")
    exp_ = ops.in_place("exp")
    expm1_ = ops.in_place("expm1")
    floor_ = ops.in_place("floor")
    fmod_ = ops.in_place("fmod")
    index_add_ = ops.in_place("index_add")
    lerp_ = ops.in_place("lerp")
    log_ = ops.in_place("log")
    log1p_ = ops.in_place("log1p")
    log2_ = ops.in_place("log2")
    logical_and_ = ops.in_place("logical_and")
    logical_not_ = ops.in_place("logical_not")
    logical_or_ = ops.in_place("logical_or")
    logical_xor_ = ops.in_place("logical_xor")
    masked_fill_ = ops.in_place("masked_fill")
    neg_ = ops.in_place("neg")
    pow_ = ops.in_place("pow")
    reciprocal_ = ops.in_place("reciprocal")
    relu_ = ops.in_place("relu")
    remainder_ = ops.in_place("remainder")
    round_ = ops.in_place("round")
    rsqrt_ = ops.in_place("rsqrt")
    scatter_ = ops.in_place("scatter")
    scatter_add_ = ops.in_place("scatter_add")
    sigmoid_ = ops.in_place("sigmoid")
    sign_ = ops.in_place("sign")
    sin_ = ops.in_place("sin")
    sqrt_ = ops.in_place("sqrt")
    square_ = ops.in_place("square")
    tan_ = ops.in_place("tan")
    tanh_ = ops.in_place("tanh")
    tril_ = ops.in_place("tril")
    triu_ = ops.in_place("triu")
    trunc_ = ops.in_place("trunc")

    # Beside this one

    new_empty = beside.new_empty
    new_full = beside.new_full
    new_ones = beside.new_ones
    new_zeros = beside.new_zeros
    bool = beside.converter("bool")
    half = beside.converter("float16")
    int = beside.converter("int32")
    type = beside.as_type
    short = beside.converter("int16")
    long = beside.converter("int64")

    # Copies and other libraries

    __deepcopy__ = interop.deepcopied
    __dlpack__ = interop.dlpack
    __dlpack_device__ = interop.dlpack_device
    __reduce__ = interop.reduced
