"""Vector norms over axes."""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np

from dl4all.errors import ArgumentError, ShapeError
from dl4all.ops.core.exports import export
from dl4all.ops.core.op import Kernel, Result, example, op
from dl4all.ops.core.tensor_base import Array, Dims, DTypeLike, TensorBase
from dl4all.ops.elementwise.arithmetic import mul, true_divide
from dl4all.ops.elementwise.comparison import eq
from dl4all.ops.elementwise.logic import logical_or, where
from dl4all.ops.elementwise.rounding import abs, sign, zero
from dl4all.ops.elementwise.transcendental import pow
from dl4all.ops.memory.conversion import cast
from dl4all.ops.reduce.reduction_kernel import Reduction, axes_of, float_dtype, reduced_shape
from dl4all.ops.reduce.repetition import repetition
from dl4all.ops.reduce.sums import (
    AXES_EXAMPLES,
    EMPTY_EXAMPLES,
    accurate_sum,
    expand_reduced,
    named_axes,
    reduced_numel,
    sum,
)

NORM_REDUCTIONS = {
    0.0: Reduction("SUM", "s.value", "x == 0.0 ? 0.0 : 1.0"),
    1.0: Reduction("SUM", "s.value", "abs(x)"),
    2.0: Reduction("SUM", "sqrt(s.value)", "x * x"),
    math.inf: Reduction("LARGEST", "s.value", "abs(x)"),
    -math.inf: Reduction("SMALLEST", "s.value", "abs(x)"),
}
GENERAL_NORM_REDUCTION = Reduction("SUM", "powf(s.value, 1.0 / p.number)", "powf(abs(x), p.number)")
ALL_NORM_REDUCTIONS = (*NORM_REDUCTIONS.values(), GENERAL_NORM_REDUCTION)
NORM_SHADERS = tuple(dict.fromkeys(code for kind in ALL_NORM_REDUCTIONS for code in kind.shaders))


def _order(p: Any) -> float:
    """The order that an argument `p` names.

    Raises:
        ArgumentError: it names none.
    """
    if p == "fro":
        return 2.0
    if p == "nuc":
        raise ArgumentError("[norm] the nuclear norm is one of matrices: use dl4all.linalg.norm(x, 'nuc')")
    if not isinstance(p, (int, float)) or isinstance(p, bool) or math.isnan(p):
        raise ArgumentError(f"[norm] p must be a number, inf, -inf or 'fro', got {p!r}")
    return float(p)


def _infer_norm(input: TensorBase, *, p: Any, dim: Any, keepdim: bool, dtype: Any) -> Result:
    axes = axes_of("norm", dim, len(input.shape))
    order = _order(p)
    if reduced_numel(input.shape, axes) == 0 and (order < 0 or math.isinf(order)):
        raise ShapeError(
            f"[norm] expected elements, the shape is {input.shape} and dim {dim}; of none there is no norm "
            f"of order {p}"
        )
    return reduced_shape(input.shape, axes, keepdim), float_dtype("norm", input, dtype)


def _run_norm(out: TensorBase, input: TensorBase, *, p: Any, dim: Any, keepdim: bool, dtype: Any) -> None:
    order = _order(p)
    NORM_REDUCTIONS.get(order, GENERAL_NORM_REDUCTION)(
        out, input, axes_of("norm", dim, len(input.shape)), order
    )


def _norm_gradient(g: Any, input: Any, result: Any, p: Any, dim: Any, keepdim: bool) -> Any:
    order = _order(p)
    if order == 0:
        return zero(input)
    if order == 2:
        divisor = where(eq(result, 0), math.inf, result)  # gradients are 0 there
        g, divisor = (expand_reduced(v, input.shape, dim, keepdim) for v in (g, divisor))
        return g * true_divide(input, divisor)
    gradient, norm = (expand_reduced(v, input.shape, dim, keepdim) for v in (g, result))
    if order == 1:
        return gradient * sign(input)
    if math.isinf(order):
        ties = cast(eq(abs(input), norm), input.dtype.name)
        return gradient * sign(input) * ties / sum(ties, dim, keepdim=True)
    share = pow(true_divide(abs(input), norm), order - 1)
    # Below order 1 the share of an element of 0 is infinite.
    is_zero = logical_or(eq(norm, 0), eq(input, 0)) if order < 1 else eq(norm, 0)
    return gradient * sign(input) * where(is_zero, 0.0, share)


@export("dl", "Tensor", out=True, autocast="float32")
@op(
    infer=_infer_norm,
    kernel=Kernel(_run_norm, NORM_SHADERS),
    examples=(
        *AXES_EXAMPLES,
        *EMPTY_EXAMPLES,
        *(example((5, 13), p=p, dim=1) for p in (0, 1, 3, 0.5, -1, math.inf, -math.inf)),
        *(example((5, 12), p=p, dim=1) for p in (0, 1, 3, math.inf, -math.inf)),
        *(example((2, 3, 5, 4), p=p, dim=(1, 3)) for p in (0, 1, 3, math.inf, -math.inf)),
        *(example((2, 2, 2, 3, 2, 2), p=p, dim=(0, 2, 3, 5)) for p in (0, 1, 3, math.inf, -math.inf)),
        *(example((20011,), p=p) for p in (0, 1, 3, math.inf, -math.inf)),
    ),
    grad=_norm_gradient,
)
def norm(
    input: Array,
    p: float | Literal["fro"] = 2,
    dim: Dims = None,
    keepdim: bool = False,
    *,
    dtype: DTypeLike = None,
) -> Array:
    """The vector norm of the elements along axes: ``sum(abs(input) ** p) ** (1 / p)``.

    Args:
        input: floats of any shape; of other dtypes with `dtype`.
        p: the order: a number, inf for the largest magnitude, -inf for the smallest, 0 for the number of
            nonzero elements; "fro" is 2.
        dim: an axis or several; all by default.
        keepdim: whether the axes stay, with size 1.
        dtype: a floating dtype for the result and the additions; by default the input's.

    Returns:
        The input's shape without the axes.

    Raises:
        ArgumentError: there is no such axis, or it is named twice, or `p` is not an order.
        ShapeError: there are no elements, and the order is negative or infinite.
        DTypeError: the dtype is not floating.

    Example:
        >>> import dl4all as dl
        >>> dl.norm(dl.tensor([[3.0, 4.0], [0.0, 1.0]]), dim=1).tolist()
        [5.0, 1.0]
    """
    axes, order, result_dtype = axes_of("norm", dim, input.ndim), _order(p), float_dtype("norm", input, dtype)
    x = np.abs(input.astype(np.result_type(result_dtype, np.float32), copy=False))
    if math.isinf(order):
        return (x.max if order > 0 else x.min)(axis=axes, keepdims=keepdim).astype(result_dtype)
    if order == 0:
        return accurate_sum((x != 0).astype(x.dtype), axes, keepdim, x.dtype).astype(result_dtype)
    powers = x if order == 1 else x * x if order == 2 else x**order
    added = accurate_sum(powers, axes, keepdim, x.dtype)
    return (added if order == 1 else np.sqrt(added) if order == 2 else added ** (1 / order)).astype(
        result_dtype
    )


def _fold(input: TensorBase, *, p: Any, dim: Any, keepdim: bool, dtype: Any) -> Any:
    found = repetition(input, named_axes(input, dim=dim))
    if found is None:
        return None
    result_dtype, order = float_dtype("norm", input, dtype), _order(p)
    wide = np.result_type(result_dtype, np.float32).name  # the factor may overflow float16
    result = norm(found.elements, p, dim, keepdim, dtype=wide)
    if not math.isinf(order):
        result = mul(result, float(found.times) ** (1 / order) if order else float(found.times))
    return result if result.dtype == result_dtype else cast(result, result_dtype.name)


norm.define_fold(_fold)
