"""Reductions over axes: sums, products, extremes, moments, norms and truth."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from dl4all import ops
from dl4all.ops.core.dtypes import kind_of
from dl4all.pytorch.device.dispatch.registration import declare, native
from dl4all.pytorch.device.storage.memory import NotNative, dtype_name, tensor
from dl4all.tensor.tensor import Tensor

Dims = list[int] | int | None

# Sums, products and what counts


def _with_dtype(function: Callable[..., Any], *, floating: bool = False) -> dict[str, Callable[..., Any]]:
    """A reduction with an argument `dtype`, of all elements and over axes."""

    def whole(x: Tensor, *, dtype: Any = None) -> Any:
        return function(_numbers(x, dtype, floating), dtype=dtype_name(dtype))

    def over(x: Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
        return function(_numbers(x, dtype, floating), dim, keepdim, dtype=dtype_name(dtype))

    return {"whole": whole, "over": over}


def _numbers(x: Tensor, dtype: Any, floating: bool) -> Tensor:
    """The operand, rounded first where the result is of half precision, as PyTorch does.

    Raises:
        NotNative: the reduction needs floats; the CPU refuses in PyTorch's words.
    """
    if floating and dtype is None and kind_of(x.dtype) != "f":
        raise NotNative(f"a mean of {x.dtype}")
    return ops.cast(x, "float16") if dtype == torch.float16 and x.dtype != np.float16 else x


def count_nonzero(x: Tensor, dim: Dims = None) -> Any:
    return ops.count_nonzero(x, dim)


WITH_DTYPE = {
    "sum": _with_dtype(ops.sum),
    "mean": _with_dtype(ops.mean, floating=True),
    "prod": _with_dtype(ops.prod),
    "nansum": _with_dtype(ops.nansum),
}

for _name, _forms in WITH_DTYPE.items():
    if _name != "nansum":
        declare(_name, _forms["whole"])
declare("sum.dim_IntList", WITH_DTYPE["sum"]["over"])
declare("mean.dim", WITH_DTYPE["mean"]["over"])
declare("prod.dim_int", WITH_DTYPE["prod"]["over"])
declare("nansum", WITH_DTYPE["nansum"]["over"])

# Truth and extremes

AXES: dict[str, Callable[..., Any]] = {
    "all": ops.all,
    "all.dim": ops.all,
    "any": ops.any,
    "any.dim": ops.any,
    "amax": ops.amax,
    "amin": ops.amin,
    "argmax": ops.argmax,
    "argmin": ops.argmin,
    "count_nonzero": count_nonzero,
    "count_nonzero.dim_IntList": count_nonzero,
    "logsumexp": ops.logsumexp,
    "max": ops.amax,
    "max.dim": ops.max,
    "min": ops.amin,
    "min.dim": ops.min,
    "median": ops.median,
    "median.dim": ops.median,
    "mode": ops.mode,
    "nanmedian": ops.nanmedian,
    "nanmedian.dim": ops.nanmedian,
}
"""Functions with dl4all's arguments in dl4all's order: the operand, axes, and whether they stay."""


def _over_dims(function: Callable[..., Any]) -> Callable[..., Any]:
    def over(x: Tensor, dim: Dims = None, keepdim: bool = False) -> Any:
        if dim == []:  # no axes, unlike for other reductions
            return x if x.dtype == np.uint8 else ops.ne(x, 0)
        return function(x, dim, keepdim)

    return over


for _name, _function in AXES.items():
    declare(_name, _function)
declare("all.dims", _over_dims(ops.all))
declare("any.dims", _over_dims(ops.any))


def aminmax(x: Tensor, *, dim: int | None = None, keepdim: bool = False) -> Any:
    return tuple(ops.aminmax(x, dim=dim, keepdim=keepdim))


declare("aminmax", aminmax)
declare("_aminmax", aminmax)
declare("_aminmax.dim", lambda x, dim, keepdim=False: aminmax(x, dim=dim, keepdim=keepdim))

# Moments


def _moments(function: Callable[..., Any]) -> Callable[..., Any]:
    def over(x: Tensor, dim: Dims = None, *, correction: float | None = None, keepdim: bool = False) -> Any:
        return function(x, dim, correction=1 if correction is None else correction, keepdim=keepdim)

    return over


for _name, _function in {
    "std.correction": ops.std,
    "std_mean.correction": ops.std_mean,
    "var.correction": ops.var,
    "var_mean.correction": ops.var_mean,
}.items():
    declare(_name, _moments(_function))

# Norms


def vector_norm(
    x: Tensor, ord: float | None = 2, dim: Dims = None, keepdim: bool = False, *, dtype: Any = None
) -> Any:
    return ops.norm(x, 2 if ord is None else ord, dim, keepdim, dtype=dtype_name(dtype))


for _name in (
    "linalg_vector_norm",
    "norm.Scalar",
    "norm.ScalarOpt_dim",
    "norm.ScalarOpt_dim_dtype",
    "norm.ScalarOpt_dtype",
):
    declare(_name, vector_norm)


def renorm(x: Tensor, p: float, dim: int, maxnorm: float) -> Any:
    """Slices along an axis, scaled down to a norm where theirs is larger."""
    axis = dim % max(len(x.shape), 1)
    others = tuple(i for i in range(len(x.shape)) if i != axis)
    if p <= 0 or maxnorm < 0 or not others:
        raise NotNative("slices without elements, or a norm that is none")
    norms = ops.norm(x, p, others, keepdim=True)
    factor = ops.true_divide(ops.zero(norms) + maxnorm, norms + 1e-7)
    return ops.mul(x, ops.where(ops.gt(norms, maxnorm), factor, 1.0))


declare("renorm", renorm)

# Of matrices, and of two tensors


def trace(x: Tensor) -> Any:
    if len(x.shape) != 2:
        raise NotNative("no matrix")
    return ops.sum(ops.diagonal(x))


declare("trace", trace)
declare("dist", lambda x, other, p=2: ops.dist(x, other, p))
declare("_euclidean_dist", lambda x1, x2: ops.cdist(x1, x2))


@native("equal")
def equal(x: Any, other: Any) -> bool:
    """Whether shapes and elements are the same; waits for the device."""
    if x.shape != other.shape:
        return False
    same = ops.all(ops.eq(tensor(x), tensor(other)))
    return bool(same.on_host())
