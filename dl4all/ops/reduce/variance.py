"""Variance, norms, and the logarithm of a sum of exponentials over axes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dl4all.errors import ArgumentError, DTypeError, ShapeError
from dl4all.ops.core import tape
from dl4all.ops.core.checks import check_float
from dl4all.ops.core.exports import export
from dl4all.ops.core.op import REGISTRY, Kernel, Result, example, op
from dl4all.ops.core.tensor_base import Array, TensorBase
from dl4all.ops.elementwise.arithmetic import mul, sub, true_divide
from dl4all.ops.elementwise.comparison import eq
from dl4all.ops.elementwise.logic import where
from dl4all.ops.memory.conversion import cast
from dl4all.ops.reduce.reduction_kernel import Reduction, axes_of, named, reduced
from dl4all.ops.reduce.sums import AXES, EMPTY, count, mean, spread, sum, total

VARIANCE = Reduction("MOMENTS", "variance(s, p.number)")
DEVIATION = Reduction("MOMENTS", "sqrt(variance(s, p.number))")
LOGSUMEXP = Reduction("LOGSUMEXP", "logarithm(s)")
NORMS = {
    0.0: Reduction("SUM", "s.value", "x == 0.0 ? 0.0 : 1.0"),
    1.0: Reduction("SUM", "s.value", "abs(x)"),
    2.0: Reduction("SUM", "sqrt(s.value)", "x * x"),
    math.inf: Reduction("LARGEST", "s.value", "abs(x)"),
    -math.inf: Reduction("SMALLEST", "s.value", "abs(x)"),
}
ANY_NORM = Reduction("SUM", "powf(s.value, 1.0 / p.number)", "powf(abs(x), p.number)")


# Of a single element there is no variance but with a correction of 0; the tests know no nan to be a gradient.
VARIED = (
    *(case for case in AXES if case.shapes[0] not in ((), (3, 1))),
    *EMPTY,
    example((5, 7), dim=1, correction=0),
    example((), correction=0),
    example((3, 1), dim=1, correction=0, keepdim=True),
)


def _variance_shape(name: str, input: TensorBase, dim: Any, correction: float, keepdim: bool) -> Result:
    check_float(name, input)
    if not isinstance(correction, (int, float)):
        raise ArgumentError(f"[{name}] correction must be a number, got {correction!r}")
    return reduced(input.shape, axes_of(name, dim, len(input.shape)), keepdim), input.dtype


def _degrees(shape: tuple[int, ...], dim: Any, correction: float) -> float:
    """What the squares are divided by."""
    return max(count(shape, axes_of("var", dim, len(shape))) - correction, 0)


def _first(x: Any, axes: tuple[int, ...]) -> Any:
    """The first element along axes: equal ones less it are exactly 0, as they are not less their mean."""
    return x[tuple(slice(0, 1) if i in axes else slice(None) for i in range(len(x.shape)))]


def _variance(input: Any, dim: Any, correction: float, keepdim: bool) -> Any:
    axes = axes_of("var", dim, input.ndim)
    x = input.astype(np.result_type(input.dtype, np.float32), copy=False)
    near = x - _first(x, axes)
    away = near - total(near, axes, True, x.dtype) / np.asarray(count(x.shape, axes) or math.nan, x.dtype)
    squares = total(away * away, axes, keepdim, x.dtype)
    return squares / np.asarray(_degrees(x.shape, dim, correction), x.dtype)


def _var_grad(g: Any, input: Any, dim: Any, correction: float, keepdim: bool) -> Any:
    near = sub(input, tape.alias(_first(input, axes_of("var", dim, len(input.shape)))))
    away = sub(near, mean(near, dim, keepdim=True))
    scale = 2 / (_degrees(input.shape, dim, correction) or math.nan)
    return spread(g, input.shape, dim, keepdim) * away * scale


@export("dl", "Tensor")
@op(
    infer=lambda input, dim, correction, keepdim: _variance_shape("var", input, dim, correction, keepdim),
    kernel=Kernel(
        lambda out, input, dim, correction, keepdim: VARIANCE(
            out, input, axes_of("var", dim, len(input.shape)), correction
        ),
        VARIANCE.shaders,
    ),
    examples=VARIED,
    grad=_var_grad,
)
def var(input: Array, dim: Any = None, *, correction: float = 1, keepdim: bool = False) -> Array:
    """The variance of the elements along axes.

    Args:
        input: floats of any shape.
        dim: an axis or several; all by default.
        correction: the squares are divided by how many there are less this: 1 for a sample (Bessel), 0 for
            all there is.
        keepdim: whether the axes stay, with size 1.

    Returns:
        The input's shape without the axes; nan where there are too few elements.

    Raises:
        ArgumentError: there is no such axis, or it is named twice.
        DTypeError: the input is not of floats.

    Example:
        >>> import dl4all as dl
        >>> dl.var(dl.tensor([1.0, 2.0, 3.0])).item()
        1.0
    """
    return _variance(input, dim, correction, keepdim)


def _std_grad(g: Any, input: Any, result: Any, dim: Any, correction: float, keepdim: bool) -> Any:
    half = where(eq(result, 0), 0.0, true_divide(g, mul(result, 2)))
    return _var_grad(half, input, dim, correction, keepdim)


@export("dl", "Tensor")
@op(
    infer=lambda input, dim, correction, keepdim: _variance_shape("std", input, dim, correction, keepdim),
    kernel=Kernel(
        lambda out, input, dim, correction, keepdim: DEVIATION(
            out, input, axes_of("std", dim, len(input.shape)), correction
        ),
        DEVIATION.shaders,
    ),
    examples=VARIED,
    grad=_std_grad,
)
def std(input: Array, dim: Any = None, *, correction: float = 1, keepdim: bool = False) -> Array:
    """The standard deviation of the elements along axes: the square root of :func:`var`.

    Args:
        input: floats of any shape.
        dim: an axis or several; all by default.
        correction: as for :func:`var`.
        keepdim: whether the axes stay, with size 1.

    Returns:
        The input's shape without the axes; nan where there are too few elements.

    Raises:
        ArgumentError: there is no such axis, or it is named twice.
        DTypeError: the input is not of floats.

    Example:
        >>> import dl4all as dl
        >>> dl.std(dl.tensor([1.0, 3.0]), correction=0).item()
        1.0
    """
    return np.sqrt(_variance(input, dim, correction, keepdim))


def _logsumexp_shape(input: TensorBase, *, dim: Any, keepdim: bool) -> Result:
    check_float("logsumexp", input)
    return reduced(input.shape, axes_of("logsumexp", dim, len(input.shape)), keepdim), input.dtype


def _logsumexp_run(out: TensorBase, input: TensorBase, *, dim: Any, keepdim: bool) -> None:
    LOGSUMEXP(out, input, axes_of("logsumexp", dim, len(input.shape)))


def _logsumexp_grad(g: Any, input: Any, result: Any, dim: Any, keepdim: bool) -> Any:
    shares = REGISTRY["exp"](sub(input, spread(result, input.shape, dim, keepdim)))
    return spread(g, input.shape, dim, keepdim) * shares


@export("dl", "Tensor")
@op(
    infer=_logsumexp_shape,
    kernel=Kernel(_logsumexp_run, LOGSUMEXP.shaders),
    examples=(*AXES, *EMPTY),
    grad=_logsumexp_grad,
)
def logsumexp(input: Array, dim: Any, keepdim: bool = False) -> Array:
    """The logarithm of the sum of the exponentials along axes, without overflow on the way.

    Args:
        input: floats of any shape.
        dim: an axis or several, None for all.
        keepdim: whether the axes stay, with size 1.

    Returns:
        The input's shape without the axes; -inf where there is nothing to add.

    Raises:
        ArgumentError: there is no such axis, or it is named twice.
        DTypeError: the input is not of floats.

    Example:
        >>> import dl4all as dl
        >>> dl.logsumexp(dl.tensor([1000.0, -1000.0]), dim=0).item()
        1000.0
    """
    axes = axes_of("logsumexp", dim, input.ndim)
    high = np.max(input, axis=axes, keepdims=True, initial=-np.inf)
    high = np.where(np.isfinite(high), high, np.zeros((), input.dtype)).astype(input.dtype)
    added = np.log(total(np.exp(input - high), axes, True, input.dtype)) + high
    return added.reshape(reduced(input.shape, axes, keepdim))


def _order(p: Any) -> float:
    if p == "fro":
        return 2.0
    if not isinstance(p, (int, float)) or isinstance(p, bool) or math.isnan(p):
        raise ArgumentError(f"[norm] p must be a number, inf, -inf or 'fro', got {p!r}")
    return float(p)


def _norm_dtype(input: Any, dtype: Any) -> np.dtype[Any]:
    found = input.dtype if dtype is None else named("norm", dtype)
    if found.kind != "f":
        raise DTypeError(f"[norm] expected floats of one dtype, got {found}; pass dtype=dl.float32")
    return np.dtype(found)


def _norm_shape(input: TensorBase, *, p: Any, dim: Any, keepdim: bool, dtype: Any) -> Result:
    axes = axes_of("norm", dim, len(input.shape))
    order = _order(p)
    if count(input.shape, axes) == 0 and (order < 0 or math.isinf(order)):
        raise ShapeError(
            f"[norm] expected elements, the shape is {input.shape} and dim {dim}; of none there is no norm "
            f"of order {p}"
        )
    return reduced(input.shape, axes, keepdim), _norm_dtype(input, dtype)


def _norm_run(out: TensorBase, input: TensorBase, *, p: Any, dim: Any, keepdim: bool, dtype: Any) -> None:
    order = _order(p)
    NORMS.get(order, ANY_NORM)(out, input, axes_of("norm", dim, len(input.shape)), order)


def _norm_grad(g: Any, input: Any, result: Any, p: Any, dim: Any, keepdim: bool) -> Any:
    order = _order(p)
    sign, power, size = REGISTRY["sign"], REGISTRY["pow"], REGISTRY["abs"]
    each, norm = (spread(v, input.shape, dim, keepdim) for v in (g, result))
    if order == 0:
        return mul(input, 0.0)
    if order == 1:
        return each * sign(input)
    if order == 2:
        return each * where(eq(norm, 0), 0.0, true_divide(input, norm))
    if math.isinf(order):
        ties = cast(eq(size(input), norm), input.dtype.name)
        return each * sign(input) * ties / sum(ties, dim, keepdim=True)
    share = where(eq(norm, 0), 0.0, power(true_divide(size(input), norm), order - 1))
    return each * sign(input) * share


@export("dl", "Tensor")
@op(
    infer=_norm_shape,
    kernel=Kernel(
        _norm_run, tuple(dict.fromkeys(code for kind in (*NORMS.values(), ANY_NORM) for code in kind.shaders))
    ),
    examples=(
        *AXES,
        *EMPTY,
        *(example((5, 13), p=p, dim=1) for p in (0, 1, 3, 0.5, -1, math.inf, -math.inf)),
        *(example((5, 12), p=p, dim=1) for p in (0, 1, 3, math.inf, -math.inf)),
        *(example((2, 3, 5, 4), p=p, dim=(1, 3)) for p in (0, 1, 3, math.inf, -math.inf)),
        *(example((2, 2, 2, 3, 2, 2), p=p, dim=(0, 2, 3, 5)) for p in (0, 1, 3, math.inf, -math.inf)),
        *(example((20011,), p=p) for p in (0, 1, 3, math.inf, -math.inf)),
    ),
    grad=_norm_grad,
)
def norm(input: Array, p: Any = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Array:
    """The vector norm of the elements along axes: ``sum(abs(input) ** p) ** (1 / p)``.

    Args:
        input: floats of any shape; of other dtypes with `dtype`.
        p: the order: a number, inf for the largest magnitude, -inf for the smallest, 0 to count what is
            not 0; "fro" is 2.
        dim: an axis or several; all by default.
        keepdim: whether the axes stay, with size 1.
        dtype: a floating dtype for the result and the additions; by default the input's.

    Returns:
        The input's shape without the axes.

    Raises:
        ArgumentError: there is no such axis, or it is named twice, or `p` is no order.
        ShapeError: there are no elements, of which there is no norm of a negative or infinite order.
        DTypeError: the dtype is not floating.

    Example:
        >>> import dl4all as dl
        >>> dl.norm(dl.tensor([[3.0, 4.0], [0.0, 1.0]]), dim=1).tolist()
        [5.0, 1.0]
    """
    axes, order, wanted = axes_of("norm", dim, input.ndim), _order(p), _norm_dtype(input, dtype)
    x = np.abs(input.astype(np.result_type(wanted, np.float32), copy=False))
    if math.isinf(order):
        return (np.amax if order > 0 else np.amin)(x, axis=axes, keepdims=keepdim).astype(wanted)
    if order == 0:
        return total((x != 0).astype(x.dtype), axes, keepdim, x.dtype).astype(wanted)
    powers = x if order == 1 else x * x if order == 2 else x**order
    added = total(powers, axes, keepdim, x.dtype)
    return (added if order == 1 else np.sqrt(added) if order == 2 else added ** (1 / order)).astype(wanted)
