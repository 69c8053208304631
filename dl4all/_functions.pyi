# Written by tools/exports.py from the @export declarations in dl4all/ops; run it after changing them.

from dl4all.ops import abs as abs
from dl4all.ops import absolute as absolute
from dl4all.ops import acos as acos
from dl4all.ops import acosh as acosh
from dl4all.ops import add as add
from dl4all.ops import addbmm as addbmm
from dl4all.ops import addcdiv as addcdiv
from dl4all.ops import addcmul as addcmul
from dl4all.ops import addmm as addmm
from dl4all.ops import addmv as addmv
from dl4all.ops import addr as addr
from dl4all.ops import adjoint as adjoint
from dl4all.ops import all as all
from dl4all.ops import allclose as allclose
from dl4all.ops import amax as amax
from dl4all.ops import amin as amin
from dl4all.ops import aminmax as aminmax
from dl4all.ops import any as any
from dl4all.ops import arccos as arccos
from dl4all.ops import arccosh as arccosh
from dl4all.ops import arcsin as arcsin
from dl4all.ops import arcsinh as arcsinh
from dl4all.ops import arctan as arctan
from dl4all.ops import arctan2 as arctan2
from dl4all.ops import arctanh as arctanh
from dl4all.ops import argmax as argmax
from dl4all.ops import argmin as argmin
from dl4all.ops import argsort as argsort
from dl4all.ops import argwhere as argwhere
from dl4all.ops import as_strided as as_strided
from dl4all.ops import asin as asin
from dl4all.ops import asinh as asinh
from dl4all.ops import atan as atan
from dl4all.ops import atan2 as atan2
from dl4all.ops import atanh as atanh
from dl4all.ops import atleast_1d as atleast_1d
from dl4all.ops import atleast_2d as atleast_2d
from dl4all.ops import atleast_3d as atleast_3d
from dl4all.ops import baddbmm as baddbmm
from dl4all.ops import bincount as bincount
from dl4all.ops import bitwise_and as bitwise_and
from dl4all.ops import bitwise_left_shift as bitwise_left_shift
from dl4all.ops import bitwise_not as bitwise_not
from dl4all.ops import bitwise_or as bitwise_or
from dl4all.ops import bitwise_right_shift as bitwise_right_shift
from dl4all.ops import bitwise_xor as bitwise_xor
from dl4all.ops import block_diag as block_diag
from dl4all.ops import bmm as bmm
from dl4all.ops import broadcast_shapes as broadcast_shapes
from dl4all.ops import broadcast_tensors as broadcast_tensors
from dl4all.ops import broadcast_to as broadcast_to
from dl4all.ops import bucketize as bucketize
from dl4all.ops import cartesian_prod as cartesian_prod
from dl4all.ops import cat as cat
from dl4all.ops import cdist as cdist
from dl4all.ops import ceil as ceil
from dl4all.ops import celu as celu
from dl4all.ops import chain_matmul as chain_matmul
from dl4all.ops import cholesky as cholesky
from dl4all.ops import cholesky_inverse as cholesky_inverse
from dl4all.ops import cholesky_solve as cholesky_solve
from dl4all.ops import chunk as chunk
from dl4all.ops import clamp as clamp
from dl4all.ops import clamp_max as clamp_max
from dl4all.ops import clamp_min as clamp_min
from dl4all.ops import clip as clip
from dl4all.ops import clone as clone
from dl4all.ops import column_stack as column_stack
from dl4all.ops import combinations as combinations
from dl4all.ops import concat as concat
from dl4all.ops import concatenate as concatenate
from dl4all.ops import copysign as copysign
from dl4all.ops import corrcoef as corrcoef
from dl4all.ops import cos as cos
from dl4all.ops import cosh as cosh
from dl4all.ops import count_nonzero as count_nonzero
from dl4all.ops import cov as cov
from dl4all.ops import cross as cross
from dl4all.ops import cummax as cummax
from dl4all.ops import cummin as cummin
from dl4all.ops import cumprod as cumprod
from dl4all.ops import cumsum as cumsum
from dl4all.ops import cumulative_trapezoid as cumulative_trapezoid
from dl4all.ops import deg2rad as deg2rad
from dl4all.ops import det as det
from dl4all.ops import diag as diag
from dl4all.ops import diag_embed as diag_embed
from dl4all.ops import diagflat as diagflat
from dl4all.ops import diagonal as diagonal
from dl4all.ops import diagonal_scatter as diagonal_scatter
from dl4all.ops import diff as diff
from dl4all.ops import digamma as digamma
from dl4all.ops import dist as dist
from dl4all.ops import div as div
from dl4all.ops import divide as divide
from dl4all.ops import dot as dot
from dl4all.ops import dsplit as dsplit
from dl4all.ops import dstack as dstack
from dl4all.ops import einsum as einsum
from dl4all.ops import eq as eq
from dl4all.ops import equal as equal
from dl4all.ops import erf as erf
from dl4all.ops import erfc as erfc
from dl4all.ops import erfinv as erfinv
from dl4all.ops import exp as exp
from dl4all.ops import exp2 as exp2
from dl4all.ops import expm1 as expm1
from dl4all.ops import fix as fix
from dl4all.ops import flatten as flatten
from dl4all.ops import flip as flip
from dl4all.ops import fliplr as fliplr
from dl4all.ops import flipud as flipud
from dl4all.ops import float_power as float_power
from dl4all.ops import floor as floor
from dl4all.ops import floor_divide as floor_divide
from dl4all.ops import fmax as fmax
from dl4all.ops import fmin as fmin
from dl4all.ops import fmod as fmod
from dl4all.ops import frac as frac
from dl4all.ops import frexp as frexp
from dl4all.ops import gather as gather
from dl4all.ops import gcd as gcd
from dl4all.ops import ge as ge
from dl4all.ops import ger as ger
from dl4all.ops import gradient as gradient
from dl4all.ops import greater as greater
from dl4all.ops import greater_equal as greater_equal
from dl4all.ops import gt as gt
from dl4all.ops import heaviside as heaviside
from dl4all.ops import histc as histc
from dl4all.ops import histogram as histogram
from dl4all.ops import hsplit as hsplit
from dl4all.ops import hstack as hstack
from dl4all.ops import hypot as hypot
from dl4all.ops import index_add as index_add
from dl4all.ops import index_copy as index_copy
from dl4all.ops import index_fill as index_fill
from dl4all.ops import index_put as index_put
from dl4all.ops import index_reduce as index_reduce
from dl4all.ops import index_select as index_select
from dl4all.ops import inner as inner
from dl4all.ops import inverse as inverse
from dl4all.ops import is_nonzero as is_nonzero
from dl4all.ops import isclose as isclose
from dl4all.ops import isfinite as isfinite
from dl4all.ops import isin as isin
from dl4all.ops import isinf as isinf
from dl4all.ops import isnan as isnan
from dl4all.ops import isneginf as isneginf
from dl4all.ops import isposinf as isposinf
from dl4all.ops import isreal as isreal
from dl4all.ops import kron as kron
from dl4all.ops import kthvalue as kthvalue
from dl4all.ops import lcm as lcm
from dl4all.ops import ldexp as ldexp
from dl4all.ops import le as le
from dl4all.ops import lerp as lerp
from dl4all.ops import less as less
from dl4all.ops import less_equal as less_equal
from dl4all.ops import lgamma as lgamma
from dl4all.ops import log as log
from dl4all.ops import log1p as log1p
from dl4all.ops import log2 as log2
from dl4all.ops import log10 as log10
from dl4all.ops import log_softmax as log_softmax
from dl4all.ops import logaddexp as logaddexp
from dl4all.ops import logaddexp2 as logaddexp2
from dl4all.ops import logcumsumexp as logcumsumexp
from dl4all.ops import logdet as logdet
from dl4all.ops import logical_and as logical_and
from dl4all.ops import logical_not as logical_not
from dl4all.ops import logical_or as logical_or
from dl4all.ops import logical_xor as logical_xor
from dl4all.ops import logit as logit
from dl4all.ops import logsumexp as logsumexp
from dl4all.ops import lt as lt
from dl4all.ops import masked_fill as masked_fill
from dl4all.ops import masked_scatter as masked_scatter
from dl4all.ops import masked_select as masked_select
from dl4all.ops import matmul as matmul
from dl4all.ops import matrix_exp as matrix_exp
from dl4all.ops import matrix_power as matrix_power
from dl4all.ops import max as max
from dl4all.ops import maximum as maximum
from dl4all.ops import mean as mean
from dl4all.ops import median as median
from dl4all.ops import min as min
from dl4all.ops import minimum as minimum
from dl4all.ops import mm as mm
from dl4all.ops import mode as mode
from dl4all.ops import moveaxis as moveaxis
from dl4all.ops import movedim as movedim
from dl4all.ops import msort as msort
from dl4all.ops import mul as mul
from dl4all.ops import multiply as multiply
from dl4all.ops import mv as mv
from dl4all.ops import mvlgamma as mvlgamma
from dl4all.ops import nan_to_num as nan_to_num
from dl4all.ops import nanmean as nanmean
from dl4all.ops import nanmedian as nanmedian
from dl4all.ops import nanquantile as nanquantile
from dl4all.ops import nansum as nansum
from dl4all.ops import narrow as narrow
from dl4all.ops import ne as ne
from dl4all.ops import neg as neg
from dl4all.ops import negative as negative
from dl4all.ops import nextafter as nextafter
from dl4all.ops import nonzero as nonzero
from dl4all.ops import norm as norm
from dl4all.ops import not_equal as not_equal
from dl4all.ops import outer as outer
from dl4all.ops import pairwise_distance as pairwise_distance
from dl4all.ops import pdist as pdist
from dl4all.ops import permute as permute
from dl4all.ops import pinverse as pinverse
from dl4all.ops import pixel_shuffle as pixel_shuffle
from dl4all.ops import pixel_unshuffle as pixel_unshuffle
from dl4all.ops import polygamma as polygamma
from dl4all.ops import positive as positive
from dl4all.ops import pow as pow
from dl4all.ops import prelu as prelu
from dl4all.ops import prod as prod
from dl4all.ops import put as put
from dl4all.ops import qr as qr
from dl4all.ops import quantile as quantile
from dl4all.ops import rad2deg as rad2deg
from dl4all.ops import ravel as ravel
from dl4all.ops import real as real
from dl4all.ops import reciprocal as reciprocal
from dl4all.ops import relu as relu
from dl4all.ops import remainder as remainder
from dl4all.ops import renorm as renorm
from dl4all.ops import repeat_interleave as repeat_interleave
from dl4all.ops import reshape as reshape
from dl4all.ops import roll as roll
from dl4all.ops import rot90 as rot90
from dl4all.ops import round as round
from dl4all.ops import row_stack as row_stack
from dl4all.ops import rsqrt as rsqrt
from dl4all.ops import rsub as rsub
from dl4all.ops import scatter as scatter
from dl4all.ops import scatter_add as scatter_add
from dl4all.ops import scatter_reduce as scatter_reduce
from dl4all.ops import searchsorted as searchsorted
from dl4all.ops import segment_reduce as segment_reduce
from dl4all.ops import select as select
from dl4all.ops import select_scatter as select_scatter
from dl4all.ops import selu as selu
from dl4all.ops import sgn as sgn
from dl4all.ops import sigmoid as sigmoid
from dl4all.ops import sign as sign
from dl4all.ops import signbit as signbit
from dl4all.ops import sin as sin
from dl4all.ops import sinc as sinc
from dl4all.ops import sinh as sinh
from dl4all.ops import slice_scatter as slice_scatter
from dl4all.ops import slogdet as slogdet
from dl4all.ops import softmax as softmax
from dl4all.ops import sort as sort
from dl4all.ops import split as split
from dl4all.ops import sqrt as sqrt
from dl4all.ops import square as square
from dl4all.ops import squeeze as squeeze
from dl4all.ops import stack as stack
from dl4all.ops import std as std
from dl4all.ops import std_mean as std_mean
from dl4all.ops import sub as sub
from dl4all.ops import subtract as subtract
from dl4all.ops import sum as sum
from dl4all.ops import svd as svd
from dl4all.ops import swapaxes as swapaxes
from dl4all.ops import swapdims as swapdims
from dl4all.ops import t as t
from dl4all.ops import take as take
from dl4all.ops import take_along_dim as take_along_dim
from dl4all.ops import tan as tan
from dl4all.ops import tanh as tanh
from dl4all.ops import tensor_split as tensor_split
from dl4all.ops import tensordot as tensordot
from dl4all.ops import tile as tile
from dl4all.ops import topk as topk
from dl4all.ops import trace as trace
from dl4all.ops import transpose as transpose
from dl4all.ops import trapezoid as trapezoid
from dl4all.ops import trapz as trapz
from dl4all.ops import triangular_solve as triangular_solve
from dl4all.ops import tril as tril
from dl4all.ops import triu as triu
from dl4all.ops import true_divide as true_divide
from dl4all.ops import trunc as trunc
from dl4all.ops import unbind as unbind
from dl4all.ops import unflatten as unflatten
from dl4all.ops import unique as unique
from dl4all.ops import unique_consecutive as unique_consecutive
from dl4all.ops import unravel_index as unravel_index
from dl4all.ops import unsqueeze as unsqueeze
from dl4all.ops import vander as vander
from dl4all.ops import var as var
from dl4all.ops import var_mean as var_mean
from dl4all.ops import vdot as vdot
from dl4all.ops import vsplit as vsplit
from dl4all.ops import vstack as vstack
from dl4all.ops import where as where
from dl4all.ops import xlogy as xlogy

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
