"""Reductions over axes, running sums, softmax."""

from __future__ import annotations

from dl4all.ops.reduce.any_all import all as all
from dl4all.ops.reduce.any_all import any as any

# Written by tools/exports.py from the @export declarations in dl4all/ops; run it after changing them.
from dl4all.ops.reduce.any_all import count_nonzero as count_nonzero
from dl4all.ops.reduce.extrema import amax as amax
from dl4all.ops.reduce.extrema import amin as amin
from dl4all.ops.reduce.extrema import aminmax as aminmax
from dl4all.ops.reduce.extrema import argmax as argmax
from dl4all.ops.reduce.extrema import argmin as argmin
from dl4all.ops.reduce.extrema import extreme_backward as extreme_backward
from dl4all.ops.reduce.extrema import max as max
from dl4all.ops.reduce.extrema import min as min
from dl4all.ops.reduce.nan_reductions import nanmean as nanmean
from dl4all.ops.reduce.nan_reductions import nansum as nansum
from dl4all.ops.reduce.scan import cumprod as cumprod
from dl4all.ops.reduce.scan import cumsum as cumsum
from dl4all.ops.reduce.scan import cumsum_backward as cumsum_backward
from dl4all.ops.reduce.softmax_dtypes import log_softmax as log_softmax
from dl4all.ops.reduce.softmax_dtypes import logsumexp as logsumexp
from dl4all.ops.reduce.softmax_dtypes import softmax as softmax
from dl4all.ops.reduce.softmax_dtypes import softmin as softmin
from dl4all.ops.reduce.softmax_function import log_softmax_backward as log_softmax_backward
from dl4all.ops.reduce.softmax_function import softmax_backward as softmax_backward
from dl4all.ops.reduce.statistics import std as std
from dl4all.ops.reduce.statistics import std_mean as std_mean
from dl4all.ops.reduce.statistics import var as var
from dl4all.ops.reduce.statistics import var_mean as var_mean
from dl4all.ops.reduce.sums import mean as mean
from dl4all.ops.reduce.sums import prod as prod
from dl4all.ops.reduce.sums import sum as sum
from dl4all.ops.reduce.sums import sum_to as sum_to
from dl4all.ops.reduce.vector_norm import norm as norm

__all__ = [
    "all",
    "amax",
    "amin",
    "aminmax",
    "any",
    "argmax",
    "argmin",
    "count_nonzero",
    "cumprod",
    "cumsum",
    "cumsum_backward",
    "extreme_backward",
    "log_softmax",
    "log_softmax_backward",
    "logsumexp",
    "max",
    "mean",
    "min",
    "nanmean",
    "nansum",
    "norm",
    "prod",
    "softmax",
    "softmax_backward",
    "softmin",
    "std",
    "std_mean",
    "sum",
    "sum_to",
    "var",
    "var_mean",
]
