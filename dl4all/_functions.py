"""Functions of tensors at the top level, as ``dl.NAME``."""

from __future__ import annotations

# Written by tools/exports.py from the @export declarations in dl4all/ops; run it after changing them.
from dl4all import ops
from dl4all.ops import adjoint as adjoint
from dl4all.ops import allclose as allclose
from dl4all.ops import argwhere as argwhere
from dl4all.ops import as_strided as as_strided
from dl4all.ops import atleast_1d as atleast_1d
from dl4all.ops import atleast_2d as atleast_2d
from dl4all.ops import atleast_3d as atleast_3d
from dl4all.ops import bincount as bincount
from dl4all.ops import bitwise_left_shift as bitwise_left_shift
from dl4all.ops import bitwise_right_shift as bitwise_right_shift
from dl4all.ops import block_diag as block_diag
from dl4all.ops import broadcast_shapes as broadcast_shapes
from dl4all.ops import broadcast_tensors as broadcast_tensors
from dl4all.ops import broadcast_to as broadcast_to
from dl4all.ops import cartesian_prod as cartesian_prod
from dl4all.ops import cdist as cdist
from dl4all.ops import celu as celu
from dl4all.ops import cholesky as cholesky
from dl4all.ops import cholesky_inverse as cholesky_inverse
from dl4all.ops import cholesky_solve as cholesky_solve
from dl4all.ops import clone as clone
from dl4all.ops import combinations as combinations
from dl4all.ops import corrcoef as corrcoef
from dl4all.ops import cov as cov
from dl4all.ops import det as det
from dl4all.ops import diag_embed as diag_embed
from dl4all.ops import diagflat as diagflat
from dl4all.ops import diagonal as diagonal
from dl4all.ops import diagonal_scatter as diagonal_scatter
from dl4all.ops import dist as dist
from dl4all.ops import dsplit as dsplit
from dl4all.ops import einsum as einsum
from dl4all.ops import equal as equal
from dl4all.ops import flatten as flatten
from dl4all.ops import flip as flip
from dl4all.ops import fliplr as fliplr
from dl4all.ops import flipud as flipud
from dl4all.ops import frexp as frexp
from dl4all.ops import gcd as gcd
from dl4all.ops import histogram as histogram
from dl4all.ops import hsplit as hsplit
from dl4all.ops import index_put as index_put
from dl4all.ops import inverse as inverse
from dl4all.ops import is_nonzero as is_nonzero
from dl4all.ops import isclose as isclose
from dl4all.ops import isfinite as isfinite
from dl4all.ops import isinf as isinf
from dl4all.ops import isnan as isnan
from dl4all.ops import isreal as isreal
from dl4all.ops import lcm as lcm
from dl4all.ops import logdet as logdet
from dl4all.ops import masked_fill as masked_fill
from dl4all.ops import masked_scatter as masked_scatter
from dl4all.ops import matrix_exp as matrix_exp
from dl4all.ops import moveaxis as moveaxis
from dl4all.ops import movedim as movedim
from dl4all.ops import mvlgamma as mvlgamma
from dl4all.ops import nextafter as nextafter
from dl4all.ops import pdist as pdist
from dl4all.ops import permute as permute
from dl4all.ops import pinverse as pinverse
from dl4all.ops import pixel_shuffle as pixel_shuffle
from dl4all.ops import pixel_unshuffle as pixel_unshuffle
from dl4all.ops import polygamma as polygamma
from dl4all.ops import positive as positive
from dl4all.ops import prelu as prelu
from dl4all.ops import put as put
from dl4all.ops import qr as qr
from dl4all.ops import ravel as ravel
from dl4all.ops import real as real
from dl4all.ops import relu as relu
from dl4all.ops import reshape as reshape
from dl4all.ops import roll as roll
from dl4all.ops import rot90 as rot90
from dl4all.ops import row_stack as row_stack
from dl4all.ops import rsub as rsub
from dl4all.ops import segment_reduce as segment_reduce
from dl4all.ops import selu as selu
from dl4all.ops import slogdet as slogdet
from dl4all.ops import svd as svd
from dl4all.ops import swapaxes as swapaxes
from dl4all.ops import swapdims as swapdims
from dl4all.ops import t as t
from dl4all.ops import tile as tile
from dl4all.ops import trace as trace
from dl4all.ops import transpose as transpose
from dl4all.ops import triangular_solve as triangular_solve
from dl4all.ops import unravel_index as unravel_index
from dl4all.ops import vander as vander
from dl4all.ops import vsplit as vsplit
from dl4all.ops.core.numpy_names import with_numpy_names
from dl4all.ops.indexing.out_argument import with_out

trapezoid = with_numpy_names(ops.trapezoid)
trapz = with_numpy_names(ops.trapz)
cumulative_trapezoid = with_numpy_names(ops.cumulative_trapezoid)
gradient = with_numpy_names(ops.gradient)
nanquantile = with_numpy_names(ops.nanquantile)
index_fill = with_numpy_names(ops.index_fill)
index_reduce = with_numpy_names(ops.index_reduce)
unique = with_numpy_names(ops.unique)
unique_consecutive = with_numpy_names(ops.unique_consecutive)
tensor_split = with_numpy_names(ops.tensor_split)
select_scatter = with_numpy_names(ops.select_scatter)
slice_scatter = with_numpy_names(ops.slice_scatter)
split = with_numpy_names(ops.split)
chunk = with_numpy_names(ops.chunk)
unbind = with_numpy_names(ops.unbind)
pairwise_distance = with_numpy_names(ops.pairwise_distance)
select = with_numpy_names(ops.select)
narrow = with_numpy_names(ops.narrow)
unflatten = with_numpy_names(ops.unflatten)
squeeze = with_numpy_names(ops.squeeze)
unsqueeze = with_numpy_names(ops.unsqueeze)
sigmoid = with_out(ops.sigmoid)
fmax = with_out(ops.fmax)
fmin = with_out(ops.fmin)
copysign = with_out(ops.copysign)
heaviside = with_out(ops.heaviside)
xlogy = with_out(ops.xlogy)
ldexp = with_out(ops.ldexp)
float_power = with_out(ops.float_power)
hypot = with_out(ops.hypot)
logaddexp = with_out(ops.logaddexp)
logaddexp2 = with_out(ops.logaddexp2)
cummax = with_out(ops.cummax)
cummin = with_out(ops.cummin)
logcumsumexp = with_out(ops.logcumsumexp)
diff = with_out(ops.diff)
div = with_out(ops.div)
divide = with_out(ops.divide)
histc = with_out(ops.histc)
dstack = with_out(ops.dstack)
column_stack = with_out(ops.column_stack)
matrix_power = with_out(ops.matrix_power)
median = with_out(ops.median)
nanmedian = with_out(ops.nanmedian)
kthvalue = with_out(ops.kthvalue)
mode = with_out(ops.mode)
quantile = with_out(ops.quantile)
renorm = with_out(ops.renorm)
index_copy = with_out(ops.index_copy)
scatter = with_out(ops.scatter)
scatter_reduce = with_out(ops.scatter_reduce)
isin = with_out(ops.isin)
sort = with_out(ops.sort)
argsort = with_out(ops.argsort)
msort = with_out(ops.msort)
topk = with_out(ops.topk)
searchsorted = with_out(ops.searchsorted)
bucketize = with_out(ops.bucketize)
asinh = with_out(ops.asinh)
arcsinh = with_out(ops.arcsinh)
acosh = with_out(ops.acosh)
arccosh = with_out(ops.arccosh)
atanh = with_out(ops.atanh)
arctanh = with_out(ops.arctanh)
frac = with_out(ops.frac)
deg2rad = with_out(ops.deg2rad)
rad2deg = with_out(ops.rad2deg)
sinc = with_out(ops.sinc)
logit = with_out(ops.logit)
signbit = with_out(ops.signbit)
isneginf = with_out(ops.isneginf)
isposinf = with_out(ops.isposinf)
add = with_out(ops.add)
sub = with_out(ops.sub)
subtract = with_out(ops.subtract)
mul = with_out(ops.mul)
multiply = with_out(ops.multiply)
true_divide = with_out(ops.true_divide)
neg = with_out(ops.neg)
negative = with_out(ops.negative)
addcmul = with_out(ops.addcmul)
addcdiv = with_out(ops.addcdiv)
lerp = with_out(ops.lerp)
eq = with_out(ops.eq)
ne = with_out(ops.ne)
not_equal = with_out(ops.not_equal)
lt = with_out(ops.lt)
less = with_out(ops.less)
le = with_out(ops.le)
less_equal = with_out(ops.less_equal)
gt = with_out(ops.gt)
greater = with_out(ops.greater)
ge = with_out(ops.ge)
greater_equal = with_out(ops.greater_equal)
maximum = with_out(ops.maximum)
minimum = with_out(ops.minimum)
clamp_min = with_out(ops.clamp_min)
clamp_max = with_out(ops.clamp_max)
clamp = with_out(ops.clamp)
clip = with_out(ops.clip)
nan_to_num = with_out(ops.nan_to_num)
logical_and = with_out(ops.logical_and)
logical_or = with_out(ops.logical_or)
logical_xor = with_out(ops.logical_xor)
logical_not = with_out(ops.logical_not)
bitwise_and = with_out(ops.bitwise_and)
bitwise_or = with_out(ops.bitwise_or)
bitwise_xor = with_out(ops.bitwise_xor)
bitwise_not = with_out(ops.bitwise_not)
where = with_out(ops.where)
abs = with_out(ops.abs)
absolute = with_out(ops.absolute)
sign = with_out(ops.sign)
sgn = with_out(ops.sgn)
floor = with_out(ops.floor)
ceil = with_out(ops.ceil)
trunc = with_out(ops.trunc)
fix = with_out(ops.fix)
round = with_out(ops.round)
remainder = with_out(ops.remainder)
fmod = with_out(ops.fmod)
floor_divide = with_out(ops.floor_divide)
lgamma = with_out(ops.lgamma)
digamma = with_out(ops.digamma)
erfinv = with_out(ops.erfinv)
sqrt = with_out(ops.sqrt)
rsqrt = with_out(ops.rsqrt)
reciprocal = with_out(ops.reciprocal)
exp = with_out(ops.exp)
exp2 = with_out(ops.exp2)
expm1 = with_out(ops.expm1)
log = with_out(ops.log)
log2 = with_out(ops.log2)
log10 = with_out(ops.log10)
log1p = with_out(ops.log1p)
sin = with_out(ops.sin)
cos = with_out(ops.cos)
tan = with_out(ops.tan)
asin = with_out(ops.asin)
arcsin = with_out(ops.arcsin)
acos = with_out(ops.acos)
arccos = with_out(ops.arccos)
atan = with_out(ops.atan)
arctan = with_out(ops.arctan)
sinh = with_out(ops.sinh)
cosh = with_out(ops.cosh)
tanh = with_out(ops.tanh)
square = with_out(ops.square)
atan2 = with_out(ops.atan2)
arctan2 = with_out(ops.arctan2)
erf = with_out(ops.erf)
erfc = with_out(ops.erfc)
pow = with_out(ops.pow)
cat = with_out(ops.cat)
concat = with_out(ops.concat)
concatenate = with_out(ops.concatenate)
stack = with_out(ops.stack)
hstack = with_out(ops.hstack)
vstack = with_out(ops.vstack)
index_select = with_out(ops.index_select)
index_add = with_out(ops.index_add)
gather = with_out(ops.gather)
scatter_add = with_out(ops.scatter_add)
take = with_out(ops.take)
take_along_dim = with_out(ops.take_along_dim)
masked_select = with_out(ops.masked_select)
nonzero = with_out(ops.nonzero)
repeat_interleave = with_out(ops.repeat_interleave)
tril = with_out(ops.tril)
triu = with_out(ops.triu)
diag = with_out(ops.diag)
mm = with_out(ops.mm)
mv = with_out(ops.mv)
bmm = with_out(ops.bmm)
outer = with_out(ops.outer)
ger = with_out(ops.ger)
addmm = with_out(ops.addmm)
baddbmm = with_out(ops.baddbmm)
addmv = with_out(ops.addmv)
addr = with_out(ops.addr)
addbmm = with_out(ops.addbmm)
inner = with_out(ops.inner)
vdot = with_out(ops.vdot)
tensordot = with_out(ops.tensordot)
kron = with_out(ops.kron)
cross = with_out(ops.cross)
chain_matmul = with_out(ops.chain_matmul)
dot = with_out(ops.dot)
matmul = with_out(ops.matmul)
count_nonzero = with_out(ops.count_nonzero)
any = with_out(ops.any)
all = with_out(ops.all)
amax = with_out(ops.amax)
amin = with_out(ops.amin)
argmax = with_out(ops.argmax)
argmin = with_out(ops.argmin)
max = with_out(ops.max)
min = with_out(ops.min)
aminmax = with_out(ops.aminmax)
nansum = with_out(ops.nansum)
nanmean = with_out(ops.nanmean)
cumsum = with_out(ops.cumsum)
cumprod = with_out(ops.cumprod)
softmax = with_out(ops.softmax)
log_softmax = with_out(ops.log_softmax)
logsumexp = with_out(ops.logsumexp)
var = with_out(ops.var)
std = with_out(ops.std)
var_mean = with_out(ops.var_mean)
std_mean = with_out(ops.std_mean)
sum = with_out(ops.sum)
mean = with_out(ops.mean)
prod = with_out(ops.prod)
norm = with_out(ops.norm)

__all__ = [
    "abs",
    "absolute",
    "acos",
    "acosh",
    "add",
    "addbmm",
    "addcdiv",
    "addcmul",
    "addmm",
    "addmv",
    "addr",
    "adjoint",
    "all",
    "allclose",
    "amax",
    "amin",
    "aminmax",
    "any",
    "arccos",
    "arccosh",
    "arcsin",
    "arcsinh",
    "arctan",
    "arctan2",
    "arctanh",
    "argmax",
    "argmin",
    "argsort",
    "argwhere",
    "as_strided",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "atleast_1d",
    "atleast_2d",
    "atleast_3d",
    "baddbmm",
    "bincount",
    "bitwise_and",
    "bitwise_left_shift",
    "bitwise_not",
    "bitwise_or",
    "bitwise_right_shift",
    "bitwise_xor",
    "block_diag",
    "bmm",
    "broadcast_shapes",
    "broadcast_tensors",
    "broadcast_to",
    "bucketize",
    "cartesian_prod",
    "cat",
    "cdist",
    "ceil",
    "celu",
    "chain_matmul",
    "cholesky",
    "cholesky_inverse",
    "cholesky_solve",
    "chunk",
    "clamp",
    "clamp_max",
    "clamp_min",
    "clip",
    "clone",
    "column_stack",
    "combinations",
    "concat",
    "concatenate",
    "copysign",
    "corrcoef",
    "cos",
    "cosh",
    "count_nonzero",
    "cov",
    "cross",
    "cummax",
    "cummin",
    "cumprod",
    "cumsum",
    "cumulative_trapezoid",
    "deg2rad",
    "det",
    "diag",
    "diag_embed",
    "diagflat",
    "diagonal",
    "diagonal_scatter",
    "diff",
    "digamma",
    "dist",
    "div",
    "divide",
    "dot",
    "dsplit",
    "dstack",
    "einsum",
    "eq",
    "equal",
    "erf",
    "erfc",
    "erfinv",
    "exp",
    "exp2",
    "expm1",
    "fix",
    "flatten",
    "flip",
    "fliplr",
    "flipud",
    "float_power",
    "floor",
    "floor_divide",
    "fmax",
    "fmin",
    "fmod",
    "frac",
    "frexp",
    "gather",
    "gcd",
    "ge",
    "ger",
    "gradient",
    "greater",
    "greater_equal",
    "gt",
    "heaviside",
    "histc",
    "histogram",
    "hsplit",
    "hstack",
    "hypot",
    "index_add",
    "index_copy",
    "index_fill",
    "index_put",
    "index_reduce",
    "index_select",
    "inner",
    "inverse",
    "is_nonzero",
    "isclose",
    "isfinite",
    "isin",
    "isinf",
    "isnan",
    "isneginf",
    "isposinf",
    "isreal",
    "kron",
    "kthvalue",
    "lcm",
    "ldexp",
    "le",
    "lerp",
    "less",
    "less_equal",
    "lgamma",
    "log",
    "log1p",
    "log2",
    "log10",
    "log_softmax",
    "logaddexp",
    "logaddexp2",
    "logcumsumexp",
    "logdet",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "logit",
    "logsumexp",
    "lt",
    "masked_fill",
    "masked_scatter",
    "masked_select",
    "matmul",
    "matrix_exp",
    "matrix_power",
    "max",
    "maximum",
    "mean",
    "median",
    "min",
    "minimum",
    "mm",
    "mode",
    "moveaxis",
    "movedim",
    "msort",
    "mul",
    "multiply",
    "mv",
    "mvlgamma",
    "nan_to_num",
    "nanmean",
    "nanmedian",
    "nanquantile",
    "nansum",
    "narrow",
    "ne",
    "neg",
    "negative",
    "nextafter",
    "nonzero",
    "norm",
    "not_equal",
    "outer",
    "pairwise_distance",
    "pdist",
    "permute",
    "pinverse",
    "pixel_shuffle",
    "pixel_unshuffle",
    "polygamma",
    "positive",
    "pow",
    "prelu",
    "prod",
    "put",
    "qr",
    "quantile",
    "rad2deg",
    "ravel",
    "real",
    "reciprocal",
    "relu",
    "remainder",
    "renorm",
    "repeat_interleave",
    "reshape",
    "roll",
    "rot90",
    "round",
    "row_stack",
    "rsqrt",
    "rsub",
    "scatter",
    "scatter_add",
    "scatter_reduce",
    "searchsorted",
    "segment_reduce",
    "select",
    "select_scatter",
    "selu",
    "sgn",
    "sigmoid",
    "sign",
    "signbit",
    "sin",
    "sinc",
    "sinh",
    "slice_scatter",
    "slogdet",
    "softmax",
    "sort",
    "split",
    "sqrt",
    "square",
    "squeeze",
    "stack",
    "std",
    "std_mean",
    "sub",
    "subtract",
    "sum",
    "svd",
    "swapaxes",
    "swapdims",
    "t",
    "take",
    "take_along_dim",
    "tan",
    "tanh",
    "tensor_split",
    "tensordot",
    "tile",
    "topk",
    "trace",
    "transpose",
    "trapezoid",
    "trapz",
    "triangular_solve",
    "tril",
    "triu",
    "true_divide",
    "trunc",
    "unbind",
    "unflatten",
    "unique",
    "unique_consecutive",
    "unravel_index",
    "unsqueeze",
    "vander",
    "var",
    "var_mean",
    "vdot",
    "vsplit",
    "vstack",
    "where",
    "xlogy",
]
