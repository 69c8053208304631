"""Functions composed of other ops."""

from __future__ import annotations

# Written by tools/exports.py from the @export declarations in dl4all/ops; run it after changing them.
from dl4all.ops.composite.activations import hardshrink as hardshrink
from dl4all.ops.composite.activations import rrelu as rrelu
from dl4all.ops.composite.activations import softshrink as softshrink
from dl4all.ops.composite.activations import tanhshrink as tanhshrink
from dl4all.ops.composite.approximate_equality import allclose as allclose
from dl4all.ops.composite.approximate_equality import equal as equal
from dl4all.ops.composite.approximate_equality import isclose as isclose
from dl4all.ops.composite.bilinear_form import bilinear as bilinear
from dl4all.ops.composite.binary import copysign as copysign
from dl4all.ops.composite.binary import float_power as float_power
from dl4all.ops.composite.binary import fmax as fmax
from dl4all.ops.composite.binary import fmin as fmin
from dl4all.ops.composite.binary import heaviside as heaviside
from dl4all.ops.composite.binary import hypot as hypot
from dl4all.ops.composite.binary import ldexp as ldexp
from dl4all.ops.composite.binary import logaddexp as logaddexp
from dl4all.ops.composite.binary import logaddexp2 as logaddexp2
from dl4all.ops.composite.binary import nextafter as nextafter
from dl4all.ops.composite.binary import rsub as rsub
from dl4all.ops.composite.binary import xlogy as xlogy
from dl4all.ops.composite.covariance import combinations as combinations
from dl4all.ops.composite.covariance import corrcoef as corrcoef
from dl4all.ops.composite.covariance import cov as cov
from dl4all.ops.composite.cumulative import cummax as cummax
from dl4all.ops.composite.cumulative import cummin as cummin
from dl4all.ops.composite.cumulative import logcumsumexp as logcumsumexp
from dl4all.ops.composite.differences import cumulative_trapezoid as cumulative_trapezoid
from dl4all.ops.composite.differences import diff as diff
from dl4all.ops.composite.differences import gradient as gradient
from dl4all.ops.composite.differences import trapezoid as trapezoid
from dl4all.ops.composite.differences import trapezoid as trapz
from dl4all.ops.composite.division import div as div
from dl4all.ops.composite.division import div as divide
from dl4all.ops.composite.embedding_bags import embedding as embedding
from dl4all.ops.composite.embedding_bags import embedding_bag as embedding_bag
from dl4all.ops.composite.factorizations import cholesky as cholesky
from dl4all.ops.composite.factorizations import det as det
from dl4all.ops.composite.factorizations import eigh as eigh
from dl4all.ops.composite.factorizations import inverse as inverse
from dl4all.ops.composite.factorizations import logdet as logdet
from dl4all.ops.composite.factorizations import qr as qr
from dl4all.ops.composite.factorizations import slogdet as slogdet
from dl4all.ops.composite.factorizations import solve as solve
from dl4all.ops.composite.factorizations import solve_triangular as solve_triangular
from dl4all.ops.composite.factorizations import svd as svd
from dl4all.ops.composite.factorizations import svd_factors as svd_factors
from dl4all.ops.composite.grid_sampler import affine_grid as affine_grid
from dl4all.ops.composite.grid_sampler import grid_sample as grid_sample
from dl4all.ops.composite.histograms import bincount as bincount
from dl4all.ops.composite.histograms import histc as histc
from dl4all.ops.composite.histograms import histogram as histogram
from dl4all.ops.composite.integer_arithmetic import bitwise_left_shift as bitwise_left_shift
from dl4all.ops.composite.integer_arithmetic import bitwise_right_shift as bitwise_right_shift
from dl4all.ops.composite.integer_arithmetic import broadcast_shapes as broadcast_shapes
from dl4all.ops.composite.integer_arithmetic import gcd as gcd
from dl4all.ops.composite.integer_arithmetic import lcm as lcm
from dl4all.ops.composite.integer_arithmetic import unravel_index as unravel_index
from dl4all.ops.composite.interpolation import interpolate as interpolate
from dl4all.ops.composite.interpolation import upsample as upsample
from dl4all.ops.composite.interpolation import upsample_bilinear as upsample_bilinear
from dl4all.ops.composite.interpolation import upsample_nearest as upsample_nearest
from dl4all.ops.composite.join import atleast_1d as atleast_1d
from dl4all.ops.composite.join import atleast_2d as atleast_2d
from dl4all.ops.composite.join import atleast_3d as atleast_3d
from dl4all.ops.composite.join import broadcast_tensors as broadcast_tensors
from dl4all.ops.composite.join import cartesian_prod as cartesian_prod
from dl4all.ops.composite.join import column_stack as column_stack
from dl4all.ops.composite.join import dstack as dstack
from dl4all.ops.composite.linear_systems import cholesky_ex as cholesky_ex
from dl4all.ops.composite.linear_systems import cholesky_inverse as cholesky_inverse
from dl4all.ops.composite.linear_systems import cholesky_solve as cholesky_solve
from dl4all.ops.composite.linear_systems import inv_ex as inv_ex
from dl4all.ops.composite.linear_systems import matrix_exp as matrix_exp
from dl4all.ops.composite.linear_systems import solve_ex as solve_ex
from dl4all.ops.composite.linear_systems import tensorinv as tensorinv
from dl4all.ops.composite.linear_systems import tensorsolve as tensorsolve
from dl4all.ops.composite.linear_systems import triangular_solve as triangular_solve
from dl4all.ops.composite.matrices import block_diag as block_diag
from dl4all.ops.composite.matrices import diagflat as diagflat
from dl4all.ops.composite.matrices import matrix_power as matrix_power
from dl4all.ops.composite.matrices import trace as trace
from dl4all.ops.composite.matrices import vander as vander
from dl4all.ops.composite.nan_quantiles import nanquantile as nanquantile
from dl4all.ops.composite.order_statistics import kthvalue as kthvalue
from dl4all.ops.composite.order_statistics import median as median
from dl4all.ops.composite.order_statistics import mode as mode
from dl4all.ops.composite.order_statistics import nanmedian as nanmedian
from dl4all.ops.composite.order_statistics import quantile as quantile
from dl4all.ops.composite.pseudoinverse import pinverse as pinverse
from dl4all.ops.composite.rearrange import adjoint as adjoint
from dl4all.ops.composite.rearrange import fliplr as fliplr
from dl4all.ops.composite.rearrange import flipud as flipud
from dl4all.ops.composite.rearrange import ravel as ravel
from dl4all.ops.composite.rearrange import rot90 as rot90
from dl4all.ops.composite.rearrange import t as t
from dl4all.ops.composite.response_normalization import local_response_norm as local_response_norm
from dl4all.ops.composite.response_normalization import renorm as renorm
from dl4all.ops.composite.scatter_reduction import index_copy as index_copy
from dl4all.ops.composite.scatter_reduction import index_fill as index_fill
from dl4all.ops.composite.scatter_reduction import index_put as index_put
from dl4all.ops.composite.scatter_reduction import index_reduce as index_reduce
from dl4all.ops.composite.scatter_reduction import masked_scatter as masked_scatter
from dl4all.ops.composite.scatter_reduction import put as put
from dl4all.ops.composite.scatter_reduction import scatter as scatter
from dl4all.ops.composite.scatter_reduction import scatter_reduce as scatter_reduce
from dl4all.ops.composite.segment_reduction import segment_reduce as segment_reduce
from dl4all.ops.composite.set_routines import isin as isin
from dl4all.ops.composite.set_routines import unique as unique
from dl4all.ops.composite.set_routines import unique_consecutive as unique_consecutive
from dl4all.ops.composite.shuffle import channel_shuffle as channel_shuffle
from dl4all.ops.composite.shuffle import pixel_shuffle as pixel_shuffle
from dl4all.ops.composite.shuffle import pixel_unshuffle as pixel_unshuffle
from dl4all.ops.composite.sliding_windows import fold as fold
from dl4all.ops.composite.sliding_windows import unfold as unfold
from dl4all.ops.composite.sliding_windows import window as window
from dl4all.ops.composite.sort_and_search import argsort as argsort
from dl4all.ops.composite.sort_and_search import argwhere as argwhere
from dl4all.ops.composite.sort_and_search import bucketize as bucketize
from dl4all.ops.composite.sort_and_search import msort as msort
from dl4all.ops.composite.sort_and_search import searchsorted as searchsorted
from dl4all.ops.composite.sort_and_search import sort as sort
from dl4all.ops.composite.sort_and_search import topk as topk
from dl4all.ops.composite.special_functions import entr as entr
from dl4all.ops.composite.special_functions import log_ndtr as log_ndtr
from dl4all.ops.composite.special_functions import mvlgamma as mvlgamma
from dl4all.ops.composite.special_functions import ndtr as ndtr
from dl4all.ops.composite.special_functions import polygamma as polygamma
from dl4all.ops.composite.special_functions import xlog1py as xlog1py
from dl4all.ops.composite.splits import dsplit as dsplit
from dl4all.ops.composite.splits import hsplit as hsplit
from dl4all.ops.composite.splits import tensor_split as tensor_split
from dl4all.ops.composite.splits import vsplit as vsplit
from dl4all.ops.composite.strided_view import as_strided as as_strided
from dl4all.ops.composite.unary import acosh as acosh
from dl4all.ops.composite.unary import acosh as arccosh
from dl4all.ops.composite.unary import asinh as arcsinh
from dl4all.ops.composite.unary import asinh as asinh
from dl4all.ops.composite.unary import atanh as arctanh
from dl4all.ops.composite.unary import atanh as atanh
from dl4all.ops.composite.unary import deg2rad as deg2rad
from dl4all.ops.composite.unary import frac as frac
from dl4all.ops.composite.unary import frexp as frexp
from dl4all.ops.composite.unary import is_nonzero as is_nonzero
from dl4all.ops.composite.unary import isneginf as isneginf
from dl4all.ops.composite.unary import isposinf as isposinf
from dl4all.ops.composite.unary import isreal as isreal
from dl4all.ops.composite.unary import logit as logit
from dl4all.ops.composite.unary import positive as positive
from dl4all.ops.composite.unary import rad2deg as rad2deg
from dl4all.ops.composite.unary import real as real
from dl4all.ops.composite.unary import signbit as signbit
from dl4all.ops.composite.unary import sinc as sinc
from dl4all.ops.composite.view_scatter import diagonal_scatter as diagonal_scatter
from dl4all.ops.composite.view_scatter import select_scatter as select_scatter
from dl4all.ops.composite.view_scatter import slice_scatter as slice_scatter

__all__ = [
    "acosh",
    "adjoint",
    "affine_grid",
    "allclose",
    "arccosh",
    "arcsinh",
    "arctanh",
    "argsort",
    "argwhere",
    "as_strided",
    "asinh",
    "atanh",
    "atleast_1d",
    "atleast_2d",
    "atleast_3d",
    "bilinear",
    "bincount",
    "bitwise_left_shift",
    "bitwise_right_shift",
    "block_diag",
    "broadcast_shapes",
    "broadcast_tensors",
    "bucketize",
    "cartesian_prod",
    "channel_shuffle",
    "cholesky",
    "cholesky_ex",
    "cholesky_inverse",
    "cholesky_solve",
    "column_stack",
    "combinations",
    "copysign",
    "corrcoef",
    "cov",
    "cummax",
    "cummin",
    "cumulative_trapezoid",
    "deg2rad",
    "det",
    "diagflat",
    "diagonal_scatter",
    "diff",
    "div",
    "divide",
    "dsplit",
    "dstack",
    "eigh",
    "embedding",
    "embedding_bag",
    "entr",
    "equal",
    "fliplr",
    "flipud",
    "float_power",
    "fmax",
    "fmin",
    "fold",
    "frac",
    "frexp",
    "gcd",
    "gradient",
    "grid_sample",
    "hardshrink",
    "heaviside",
    "histc",
    "histogram",
    "hsplit",
    "hypot",
    "index_copy",
    "index_fill",
    "index_put",
    "index_reduce",
    "interpolate",
    "inv_ex",
    "inverse",
    "is_nonzero",
    "isclose",
    "isin",
    "isneginf",
    "isposinf",
    "isreal",
    "kthvalue",
    "lcm",
    "ldexp",
    "local_response_norm",
    "log_ndtr",
    "logaddexp",
    "logaddexp2",
    "logcumsumexp",
    "logdet",
    "logit",
    "masked_scatter",
    "matrix_exp",
    "matrix_power",
    "median",
    "mode",
    "msort",
    "mvlgamma",
    "nanmedian",
    "nanquantile",
    "ndtr",
    "nextafter",
    "pinverse",
    "pixel_shuffle",
    "pixel_unshuffle",
    "polygamma",
    "positive",
    "put",
    "qr",
    "quantile",
    "rad2deg",
    "ravel",
    "real",
    "renorm",
    "rot90",
    "rrelu",
    "rsub",
    "scatter",
    "scatter_reduce",
    "searchsorted",
    "segment_reduce",
    "select_scatter",
    "signbit",
    "sinc",
    "slice_scatter",
    "slogdet",
    "softshrink",
    "solve",
    "solve_ex",
    "solve_triangular",
    "sort",
    "svd",
    "svd_factors",
    "t",
    "tanhshrink",
    "tensor_split",
    "tensorinv",
    "tensorsolve",
    "topk",
    "trace",
    "trapezoid",
    "trapz",
    "triangular_solve",
    "unfold",
    "unique",
    "unique_consecutive",
    "unravel_index",
    "upsample",
    "upsample_bilinear",
    "upsample_nearest",
    "vander",
    "vsplit",
    "window",
    "xlog1py",
    "xlogy",
]
