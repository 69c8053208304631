"""Elementwise ops with broadcasting."""

from __future__ import annotations

# Written by tools/exports.py from the @export declarations in dl4all/ops; run it after changing them.
from dl4all.ops.elementwise.arithmetic import add as add
from dl4all.ops.elementwise.arithmetic import addcdiv as addcdiv
from dl4all.ops.elementwise.arithmetic import addcmul as addcmul
from dl4all.ops.elementwise.arithmetic import clone as clone
from dl4all.ops.elementwise.arithmetic import lerp as lerp
from dl4all.ops.elementwise.arithmetic import mul as mul
from dl4all.ops.elementwise.arithmetic import mul as multiply
from dl4all.ops.elementwise.arithmetic import neg as neg
from dl4all.ops.elementwise.arithmetic import neg as negative
from dl4all.ops.elementwise.arithmetic import sub as sub
from dl4all.ops.elementwise.arithmetic import sub as subtract
from dl4all.ops.elementwise.arithmetic import true_divide as true_divide
from dl4all.ops.elementwise.comparison import clamp as clamp
from dl4all.ops.elementwise.comparison import clamp as clip
from dl4all.ops.elementwise.comparison import clamp_max as clamp_max
from dl4all.ops.elementwise.comparison import clamp_min as clamp_min
from dl4all.ops.elementwise.comparison import clamp_unchecked as clamp_unchecked
from dl4all.ops.elementwise.comparison import eq as eq
from dl4all.ops.elementwise.comparison import ge as ge
from dl4all.ops.elementwise.comparison import ge as greater_equal
from dl4all.ops.elementwise.comparison import gt as greater
from dl4all.ops.elementwise.comparison import gt as gt
from dl4all.ops.elementwise.comparison import in_range as in_range
from dl4all.ops.elementwise.comparison import isfinite as isfinite
from dl4all.ops.elementwise.comparison import isinf as isinf
from dl4all.ops.elementwise.comparison import isnan as isnan
from dl4all.ops.elementwise.comparison import le as le
from dl4all.ops.elementwise.comparison import le as less_equal
from dl4all.ops.elementwise.comparison import lt as less
from dl4all.ops.elementwise.comparison import lt as lt
from dl4all.ops.elementwise.comparison import maximum as maximum
from dl4all.ops.elementwise.comparison import maximum_backward as maximum_backward
from dl4all.ops.elementwise.comparison import minimum as minimum
from dl4all.ops.elementwise.comparison import nan_to_num as nan_to_num
from dl4all.ops.elementwise.comparison import ne as ne
from dl4all.ops.elementwise.comparison import ne as not_equal
from dl4all.ops.elementwise.logic import bitwise_and as bitwise_and
from dl4all.ops.elementwise.logic import bitwise_not as bitwise_not
from dl4all.ops.elementwise.logic import bitwise_or as bitwise_or
from dl4all.ops.elementwise.logic import bitwise_xor as bitwise_xor
from dl4all.ops.elementwise.logic import logical_and as logical_and
from dl4all.ops.elementwise.logic import logical_not as logical_not
from dl4all.ops.elementwise.logic import logical_or as logical_or
from dl4all.ops.elementwise.logic import logical_xor as logical_xor
from dl4all.ops.elementwise.logic import masked_fill as masked_fill
from dl4all.ops.elementwise.logic import where as where
from dl4all.ops.elementwise.loss_terms import binary_error as binary_error
from dl4all.ops.elementwise.loss_terms import binary_error_backward as binary_error_backward
from dl4all.ops.elementwise.loss_terms import logistic_error as logistic_error
from dl4all.ops.elementwise.loss_terms import logistic_error_backward as logistic_error_backward
from dl4all.ops.elementwise.loss_terms import smooth_error as smooth_error
from dl4all.ops.elementwise.loss_terms import smooth_error_backward as smooth_error_backward
from dl4all.ops.elementwise.loss_terms import squared_error as squared_error
from dl4all.ops.elementwise.loss_terms import squared_error_backward as squared_error_backward
from dl4all.ops.elementwise.rounding import abs as abs
from dl4all.ops.elementwise.rounding import abs as absolute
from dl4all.ops.elementwise.rounding import ceil as ceil
from dl4all.ops.elementwise.rounding import floor as floor
from dl4all.ops.elementwise.rounding import floor_divide as floor_divide
from dl4all.ops.elementwise.rounding import fmod as fmod
from dl4all.ops.elementwise.rounding import remainder as remainder
from dl4all.ops.elementwise.rounding import round as round
from dl4all.ops.elementwise.rounding import round_even as round_even
from dl4all.ops.elementwise.rounding import sign as sgn
from dl4all.ops.elementwise.rounding import sign as sign
from dl4all.ops.elementwise.rounding import trunc as fix
from dl4all.ops.elementwise.rounding import trunc as trunc
from dl4all.ops.elementwise.rounding import zero as zero
from dl4all.ops.elementwise.special_functions import digamma as digamma
from dl4all.ops.elementwise.special_functions import erfcx as erfcx
from dl4all.ops.elementwise.special_functions import erfinv as erfinv
from dl4all.ops.elementwise.special_functions import lgamma as lgamma
from dl4all.ops.elementwise.special_functions import ndtri as ndtri
from dl4all.ops.elementwise.special_functions import zeta as zeta
from dl4all.ops.elementwise.transcendental import acos as acos
from dl4all.ops.elementwise.transcendental import acos as arccos
from dl4all.ops.elementwise.transcendental import asin as arcsin
from dl4all.ops.elementwise.transcendental import asin as asin
from dl4all.ops.elementwise.transcendental import atan as arctan
from dl4all.ops.elementwise.transcendental import atan as atan
from dl4all.ops.elementwise.transcendental import atan2 as arctan2
from dl4all.ops.elementwise.transcendental import atan2 as atan2
from dl4all.ops.elementwise.transcendental import cos as cos
from dl4all.ops.elementwise.transcendental import cosh as cosh
from dl4all.ops.elementwise.transcendental import erf as erf
from dl4all.ops.elementwise.transcendental import erfc as erfc
from dl4all.ops.elementwise.transcendental import exp as exp
from dl4all.ops.elementwise.transcendental import exp2 as exp2
from dl4all.ops.elementwise.transcendental import expm1 as expm1
from dl4all.ops.elementwise.transcendental import log as log
from dl4all.ops.elementwise.transcendental import log1p as log1p
from dl4all.ops.elementwise.transcendental import log2 as log2
from dl4all.ops.elementwise.transcendental import log10 as log10
from dl4all.ops.elementwise.transcendental import pow as pow
from dl4all.ops.elementwise.transcendental import reciprocal as reciprocal
from dl4all.ops.elementwise.transcendental import rsqrt as rsqrt
from dl4all.ops.elementwise.transcendental import sin as sin
from dl4all.ops.elementwise.transcendental import sinh as sinh
from dl4all.ops.elementwise.transcendental import sqrt as sqrt
from dl4all.ops.elementwise.transcendental import square as square
from dl4all.ops.elementwise.transcendental import tan as tan
from dl4all.ops.elementwise.transcendental import tanh as tanh
from dl4all.ops.elementwise.transcendental import tanh_backward as tanh_backward

__all__ = [
    "abs",
    "absolute",
    "acos",
    "add",
    "addcdiv",
    "addcmul",
    "arccos",
    "arcsin",
    "arctan",
    "arctan2",
    "asin",
    "atan",
    "atan2",
    "binary_error",
    "binary_error_backward",
    "bitwise_and",
    "bitwise_not",
    "bitwise_or",
    "bitwise_xor",
    "ceil",
    "clamp",
    "clamp_max",
    "clamp_min",
    "clamp_unchecked",
    "clip",
    "clone",
    "cos",
    "cosh",
    "digamma",
    "eq",
    "erf",
    "erfc",
    "erfcx",
    "erfinv",
    "exp",
    "exp2",
    "expm1",
    "fix",
    "floor",
    "floor_divide",
    "fmod",
    "ge",
    "greater",
    "greater_equal",
    "gt",
    "in_range",
    "isfinite",
    "isinf",
    "isnan",
    "le",
    "lerp",
    "less",
    "less_equal",
    "lgamma",
    "log",
    "log1p",
    "log2",
    "log10",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "logistic_error",
    "logistic_error_backward",
    "lt",
    "masked_fill",
    "maximum",
    "maximum_backward",
    "minimum",
    "mul",
    "multiply",
    "nan_to_num",
    "ndtri",
    "ne",
    "neg",
    "negative",
    "not_equal",
    "pow",
    "reciprocal",
    "remainder",
    "round",
    "round_even",
    "rsqrt",
    "sgn",
    "sign",
    "sin",
    "sinh",
    "smooth_error",
    "smooth_error_backward",
    "sqrt",
    "square",
    "squared_error",
    "squared_error_backward",
    "sub",
    "subtract",
    "tan",
    "tanh",
    "tanh_backward",
    "true_divide",
    "trunc",
    "where",
    "zero",
    "zeta",
]
