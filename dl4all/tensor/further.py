"""The methods beside those that most programs call: second names, and what is made of other ops."""

from __future__ import annotations

from typing import Any

from dl4all import ops
from dl4all.ops.composite import aliases
from dl4all.ops.core import strides
from dl4all.tensor import beside, filling, turning
from dl4all.tensor.moving import Moving


class Further(Moving):
    """What :class:`dl4all.Tensor` has so that PyTorch's programs find what they look for."""

    __slots__ = ()

    # Second names

    absolute = ops.absolute
    arccos = ops.arccos
    arcsin = ops.arcsin
    arctan = ops.arctan
    arctan2 = ops.arctan2
    divide = ops.divide
    fix = ops.fix
    ger = ops.ger
    greater = ops.greater
    greater_equal = ops.greater_equal
    less = ops.less
    less_equal = ops.less_equal
    multiply = aliases.multiply
    negative = ops.negative
    not_equal = ops.not_equal
    positive = ops.positive
    ravel = ops.ravel
    sgn = ops.sgn
    subtract = ops.subtract
    true_divide = ops.true_divide

    # Element by element

    acosh = arccosh = ops.acosh
    asinh = arcsinh = ops.asinh
    atanh = arctanh = ops.atanh
    copysign = ops.copysign
    cosh = ops.cosh
    deg2rad = ops.deg2rad
    float_power = ops.float_power
    fmax = ops.fmax
    fmin = ops.fmin
    frac = ops.frac
    hardshrink = ops.hardshrink
    heaviside = ops.heaviside
    hypot = ops.hypot
    isneginf = ops.isneginf
    isposinf = ops.isposinf
    isreal = ops.isreal
    ldexp = ops.ldexp
    logaddexp = ops.logaddexp
    logaddexp2 = ops.logaddexp2
    logit = ops.logit
    prelu = ops.prelu
    rad2deg = ops.rad2deg
    signbit = ops.signbit
    sinc = ops.sinc
    xlogy = ops.xlogy

    # Along axes, and in order

    aminmax = ops.aminmax
    cummax = ops.cummax
    cummin = ops.cummin
    diff = ops.diff
    histc = ops.histc
    kthvalue = ops.kthvalue
    logcumsumexp = ops.logcumsumexp
    median = ops.median
    mode = ops.mode
    msort = ops.msort
    nanmean = ops.nanmean
    nanmedian = ops.nanmedian
    nansum = ops.nansum
    quantile = ops.quantile
    renorm = ops.renorm
    unique_consecutive = ops.unique_consecutive

    # Products and comparisons

    addbmm = ops.addbmm
    addmv = ops.addmv
    addr = ops.addr
    allclose = ops.allclose
    cross = ops.cross
    dist = ops.dist
    equal = ops.equal
    inner = ops.inner
    isclose = ops.isclose
    kron = ops.kron
    matrix_power = ops.matrix_power
    trace = ops.trace
    vdot = ops.vdot

    # Parts and places

    adjoint = ops.adjoint
    argwhere = ops.argwhere
    diagflat = ops.diagflat
    diagonal_scatter = ops.diagonal_scatter
    dsplit = ops.dsplit
    fliplr = ops.fliplr
    flipud = ops.flipud
    hsplit = ops.hsplit
    index_copy = ops.index_copy
    index_fill = ops.index_fill
    index_put = ops.index_put
    masked_scatter = ops.masked_scatter
    rot90 = ops.rot90
    scatter_reduce = ops.scatter_reduce
    select_scatter = ops.select_scatter
    slice_scatter = ops.slice_scatter
    t = ops.t
    tensor_split = ops.tensor_split
    vsplit = ops.vsplit

    # Changes in place

    absolute_ = ops.in_place("abs")
    acos_ = arccos_ = ops.in_place("acos")
    acosh_ = arccosh_ = ops.in_place("acosh")
    addbmm_ = ops.in_place("addbmm")
    addmm_ = ops.in_place("addmm")
    addmv_ = ops.in_place("addmv")
    addr_ = ops.in_place("addr")
    asin_ = arcsin_ = ops.in_place("asin")
    asinh_ = arcsinh_ = ops.in_place("asinh")
    atan_ = arctan_ = ops.in_place("atan")
    atan2_ = arctan2_ = ops.in_place("atan2")
    atanh_ = arctanh_ = ops.in_place("atanh")
    baddbmm_ = ops.in_place("baddbmm")
    clip_ = ops.in_place("clamp")
    copysign_ = ops.in_place("copysign")
    cosh_ = ops.in_place("cosh")
    cumprod_ = ops.in_place("cumprod")
    cumsum_ = ops.in_place("cumsum")
    deg2rad_ = ops.in_place("deg2rad")
    divide_ = ops.in_place("divide")
    eq_ = ops.in_place("eq")
    erfc_ = ops.in_place("erfc")
    exp2_ = ops.in_place("exp2")
    fix_ = ops.in_place("trunc")
    floor_divide_ = ops.in_place("floor_divide")
    frac_ = ops.in_place("frac")
    ge_ = greater_equal_ = ops.in_place("ge")
    gt_ = greater_ = ops.in_place("gt")
    heaviside_ = ops.in_place("heaviside")
    hypot_ = ops.in_place("hypot")
    index_copy_ = ops.in_place("index_copy")
    index_fill_ = ops.in_place("index_fill")
    index_put_ = ops.in_place("index_put")
    ldexp_ = ops.in_place("ldexp")
    le_ = less_equal_ = ops.in_place("le")
    log10_ = ops.in_place("log10")
    logit_ = ops.in_place("logit")
    lt_ = less_ = ops.in_place("lt")
    masked_scatter_ = ops.in_place("masked_scatter")
    multiply_ = ops.in_place("mul")
    nan_to_num_ = ops.in_place("nan_to_num")
    ne_ = not_equal_ = ops.in_place("ne")
    negative_ = ops.in_place("neg")
    rad2deg_ = ops.in_place("rad2deg")
    renorm_ = ops.in_place("renorm")
    scatter_reduce_ = ops.in_place("scatter_reduce")
    sgn_ = ops.in_place("sign")
    sinc_ = ops.in_place("sinc")
    sinh_ = ops.in_place("sinh")
    subtract_ = ops.in_place("sub")
    true_divide_ = ops.in_place("div")
    xlogy_ = ops.in_place("xlogy")

    squeeze_ = turning.changed(ops.squeeze)
    swapaxes_ = swapdims_ = transpose_ = turning.changed(ops.transpose)
    t_ = turning.changed(ops.t)
    unsqueeze_ = turning.changed(ops.unsqueeze)

    cauchy_ = filling.cauchy_
    exponential_ = filling.exponential_
    fill_diagonal_ = filling.fill_diagonal_
    geometric_ = filling.geometric_
    log_normal_ = filling.log_normal_
    random_ = filling.random_

    # Beside this one

    bernoulli = filling.bernoulli
    byte = beside.converter("uint8")
    char = beside.converter("int8")
    multinomial = filling.multinomial
    new_tensor = turning.new_tensor
    sum_to_size = turning.sum_to_size
    type_as = turning.type_as

    # Facts

    def nelement(self) -> int:
        """How many elements there are."""
        return self.numel()

    def ndimension(self) -> int:
        """How many axes there are."""
        return len(self.shape)

    @property
    def itemsize(self) -> int:
        """How many bytes an element takes."""
        return self.dtype.itemsize

    def stride(self, dim: int | None = None) -> Any:
        """How many elements on the next place of each axis lies in memory, or that of axis `dim`."""
        return self.strides if dim is None else self.strides[strides.axis("stride", dim, len(self.shape))]

    def storage_offset(self) -> int:
        """How many elements before the first one lie in the memory that it is part of."""
        return self.offset

    def is_complex(self) -> bool:
        """False: there are no complex numbers."""
        return False

    def is_signed(self) -> bool:
        """Whether the element type has numbers below 0."""
        return self.dtype.kind in "fi"

    def is_same_size(self, other: Any) -> bool:
        """Whether another tensor has the same shape."""
        return bool(self.shape == other.shape)

    def is_nonzero(self) -> bool:
        """Whether the only element is not 0."""
        return ops.is_nonzero(self)
