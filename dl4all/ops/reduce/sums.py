"""sum, mean, prod and sum_to."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from dl4all.errors import ShapeError
from dl4all.ops.core.dtypes import FLOAT32, FLOATS, HALVES, kind_of, widened
from dl4all.ops.core.exports import export
from dl4all.ops.core.op import Kernel, Result, example, op, primitives
from dl4all.ops.core.tape import repeated_axes
from dl4all.ops.core.tensor_base import Array, Dims, DTypeLike, Shape, TensorBase
from dl4all.ops.elementwise.arithmetic import mul
from dl4all.ops.elementwise.comparison import eq
from dl4all.ops.elementwise.logic import where
from dl4all.ops.memory.conversion import cast
from dl4all.ops.memory.views import expand, reshape
from dl4all.ops.reduce.reduction_kernel import Reduction, axes_of, float_dtype, reduced_shape, sum_dtype
from dl4all.ops.reduce.repetition import fold_alike, fold_linear, repetition
from dl4all.ops.sorting.integer_reduction import reduce_integers

SUM_REDUCTION = Reduction("SUM", "s.value / p.number")
COUNT_REDUCTION = Reduction("COUNT", "s.count", wide=True)
PRODUCT_REDUCTION = Reduction("PRODUCT", "s.value")

AXES_EXAMPLES = (
    example((7, 13), dim=None),
    example((5, 3, 7), dim=1),
    example((5, 3, 7), dim=-1, keepdim=True),
    example((2, 3, 5, 7), dim=(0, 2)),
    # Elements that can be read four at once.
    example((5, 12), dim=1),
    example((2, 3, 5, 4), dim=(1, 3)),
    # More axes than the kernel has where they are strided, and no two of them merge.
    example((2, 2, 2, 3, 2, 2), dim=3),
    example((2, 3, 2, 2, 2, 2), dim=(0, 1, 3, 5), keepdim=True),
    example((67, 131), dim=0),
    example((70001,), dim=0),
    example((2, 67, 131), dim=(0, 2)),
    example((), dim=0),
    example((3, 1), dim=1),
    example((0, 5), dim=1),
)
"""Examples of every reduction over several axes."""

EMPTY_EXAMPLES = (example((0, 5), dim=0), example((5, 0), dim=None))
"""Reductions of no elements, for the ops that are defined for these."""


MAX_NUMPY_ROWS = 16  # rows that NumPy may add one after the other without losing digits
MAX_NUMPY_RUN = 32768  # adjacent elements, which NumPy adds in blocks


def accurate_sum(x: Any, axes: tuple[int, ...], keepdim: bool, dtype: np.dtype[Any]) -> Any:
    """NumPy's sum, with long axes folded first: NumPy alone loses digits, and in 16 bits most of them."""
    shape = reduced_shape(x.shape, axes, keepdim)
    if dtype in HALVES:
        return accurate_sum(x, axes, keepdim, FLOAT32).astype(dtype)
    if kind_of(dtype) == "f" and x.size > MAX_NUMPY_RUN:
        if len(axes) == x.ndim and x.flags.c_contiguous:
            x, axes = x.reshape(-1), (0,)
        rows = [axis for axis in axes if x.strides[axis] != x.itemsize]
        while math.prod(x.shape[axis] for axis in rows) > MAX_NUMPY_ROWS:
            x = _fold(np.asarray(x, dtype), max(rows, key=lambda axis: x.shape[axis]))
        for axis in axes:
            while x.shape[axis] > MAX_NUMPY_RUN:
                x = _fold(np.asarray(x, dtype), axis)
    return np.sum(x, axis=axes, dtype=dtype).reshape(shape)


def _fold(x: Any, axis: int) -> Any:
    """Add the second half of the rows to the first."""
    x = np.moveaxis(x, axis, 0)
    half = len(x) // 2
    folded = x[:half] + x[half : 2 * half]
    if len(x) % 2:
        folded[0] += x[-1]
    return np.moveaxis(folded, 0, axis)


def reduced_numel(shape: Shape, axes: tuple[int, ...]) -> int:
    """The number of elements that are reduced to each one."""
    return math.prod(shape[i] for i in axes)


def expand_reduced(tensor: Any, shape: Shape, dim: Any, keepdim: bool) -> Any:
    """Expand a reduced tensor, such as a gradient, to the shape before the reduction."""
    if keepdim or dim is None:
        return expand(tensor, shape)
    axes = axes_of("sum", dim, len(shape))
    return expand(reshape(tensor, reduced_shape(shape, axes, True)), shape)


def _infer_sum_to(input: TensorBase, shape: Shape) -> Result:
    target = tuple(shape)
    missing = len(input.shape) - len(target)
    if missing < 0 or any(
        size not in (1, wide) for size, wide in zip(target, input.shape[missing:], strict=True)
    ):
        raise ShapeError(f"[sum_to] shape {target} does not broadcast to the input's {input.shape}")
    return target, input.dtype


def _run_sum_to(out: TensorBase, input: TensorBase, shape: Shape) -> None:
    SUM_REDUCTION(out, input, repeated_axes(tuple(shape), input.shape))


@export()
@op(
    infer=_infer_sum_to,
    kernel=Kernel(_run_sum_to, SUM_REDUCTION.shaders),
    examples=(
        example((5, 3, 7), shape=(3, 1)),
        example((5, 3, 7), shape=()),
        example((5, 3), shape=(5, 3)),
        example((0, 3), shape=(1, 3)),
        example((3, 5, 7, 2), shape=(5, 1, 1)),
        example((131, 67), shape=(67,)),
    ),
    grad=lambda g, shapes: expand(g, shapes[0]),
)
def sum_to(input: Array, shape: Shape) -> Array:
    """Sum over the axes along which `shape` was broadcast: the gradient of broadcasting.

    Args:
        input: any shape and dtype.
        shape: a shape that broadcasts to the input's.

    Returns:
        The given shape, in the input's dtype.

    Raises:
        ShapeError: `shape` does not broadcast to the input's.

    Example:
        >>> import dl4all as dl
        >>> dl.ops.sum_to(dl.tensor([[1.0, 2.0], [3.0, 4.0]]), (2,)).tolist()
        [4.0, 6.0]
    """
    return accurate_sum(input, repeated_axes(tuple(shape), input.shape), True, input.dtype).reshape(shape)


primitives.sum_to = sum_to
sum_to.define_fold(fold_linear(sum_to, lambda input, shape: repeated_axes(tuple(shape), input.shape)))


def _infer_sum(name: str) -> Callable[..., Result]:
    def infer(input: TensorBase, *, dim: Any, keepdim: bool, dtype: Any) -> Result:
        axes = axes_of(name, dim, len(input.shape))
        return reduced_shape(input.shape, axes, keepdim), sum_dtype(name, input, dtype)

    return infer


def _run_sum(out: TensorBase, input: TensorBase, *, dim: Any, keepdim: bool, dtype: Any) -> None:
    axes = axes_of("sum", dim, len(input.shape))
    if out.dtype in FLOATS:
        SUM_REDUCTION(out, input, axes)
    elif input.dtype == np.bool_:
        COUNT_REDUCTION(out, input, axes)
    else:
        reduce_integers(out, input, axes, "sum")


@export("dl", "Tensor", out=True, autocast="float32 result")
@op(
    infer=_infer_sum("sum"),
    kernel=Kernel(_run_sum, (*SUM_REDUCTION.shaders, *COUNT_REDUCTION.shaders), ("float32", "int64")),
    examples=(*AXES_EXAMPLES, *EMPTY_EXAMPLES),
    grad=lambda g, shapes, dim, keepdim: expand_reduced(g, shapes[0], dim, keepdim),
)
def sum(input: Array, dim: Dims = None, keepdim: bool = False, *, dtype: DTypeLike = None) -> Array:
    """The sum of the elements along axes.

    Long float32 sums keep their digits: they are added in blocks, on devices and in NumPy.

    Args:
        input: any shape and dtype.
        dim: an axis or several; all by default.
        keepdim: whether the axes stay, with size 1.
        dtype: of the result, and of the additions; by default the input's, and int64 for bool and integers.

    Returns:
        The input's shape without the axes; 0 where there is nothing to add.

    Raises:
        ArgumentError: there is no such axis, or it is named twice.
        DTypeError: tensors cannot have that dtype.

    Example:
        >>> import dl4all as dl
        >>> dl.sum(dl.tensor([[1.0, 2.0], [3.0, 4.0]]), dim=0).tolist()
        [4.0, 6.0]
    """
    return accurate_sum(input, axes_of("sum", dim, input.ndim), keepdim, sum_dtype("sum", input, dtype))


def named_axes(input: TensorBase, *, dim: Any, **arguments: Any) -> tuple[int, ...]:
    """The axes that the argument `dim` of a reduction names."""
    return axes_of("reduction", dim, len(input.shape))


sum.define_fold(fold_linear(sum, named_axes))


def _infer_mean(input: TensorBase, *, dim: Any, keepdim: bool, dtype: Any) -> Result:
    axes = axes_of("mean", dim, len(input.shape))
    return reduced_shape(input.shape, axes, keepdim), float_dtype("mean", input, dtype)


def _run_mean(out: TensorBase, input: TensorBase, *, dim: Any, keepdim: bool, dtype: Any) -> None:
    axes = axes_of("mean", dim, len(input.shape))
    SUM_REDUCTION(out, input, axes, reduced_numel(input.shape, axes) or math.nan)


def _mean_gradient(g: Any, shapes: Any, dim: Any, keepdim: bool) -> Any:
    shape = shapes[0]
    share = g / (reduced_numel(shape, axes_of("mean", dim, len(shape))) or math.nan)
    return expand_reduced(share, shape, dim, keepdim)


@export("dl", "Tensor", out=True)
@op(
    infer=_infer_mean,
    kernel=Kernel(_run_mean, SUM_REDUCTION.shaders),
    examples=(*AXES_EXAMPLES, *EMPTY_EXAMPLES),
    grad=_mean_gradient,
)
def mean(input: Array, dim: Dims = None, keepdim: bool = False, *, dtype: DTypeLike = None) -> Array:
    """The mean of the elements along axes.

    Args:
        input: floats of any shape; of other dtypes with `dtype`.
        dim: an axis or several; all by default.
        keepdim: whether the axes stay, with size 1.
        dtype: a floating dtype for the result and the additions; by default the input's.

    Returns:
        The input's shape without the axes; nan where there is nothing to average.

    Raises:
        ArgumentError: there is no such axis, or it is named twice.
        DTypeError: the dtype is not floating.

    Example:
        >>> import dl4all as dl
        >>> dl.mean(dl.tensor([[1.0, 2.0], [3.0, 4.0]]), dim=1, keepdim=True).tolist()
        [[1.5], [3.5]]
    """
    axes = axes_of("mean", dim, input.ndim)
    result_dtype = float_dtype("mean", input, dtype)
    wide = widened(result_dtype)  # the sum, or the count, may overflow float16
    added = accurate_sum(input, axes, keepdim, wide)
    return (added / np.asarray(reduced_numel(input.shape, axes) or math.nan, wide)).astype(result_dtype)


mean.define_fold(fold_alike(mean, named_axes))


def _run_prod(out: TensorBase, input: TensorBase, *, dim: Any, keepdim: bool, dtype: Any) -> None:
    axes = axes_of("prod", dim, len(input.shape))
    if out.dtype in FLOATS:
        PRODUCT_REDUCTION(out, input, axes)
    else:
        reduce_integers(out, input, axes, "prod")


def _prod_gradient(g: Any, input: Any, dim: Any, keepdim: bool) -> Any:
    """The product of all other elements: 0 if a zero is among them, and computed without dividing by zero."""
    zero = eq(input, 0)
    nonzero = where(zero, 1.0, input)
    zeros = sum(zero, dim, keepdim=True, dtype=input.dtype)
    rest = prod(nonzero, dim, keepdim=True)
    at_zero = where(eq(zeros, 1), rest, 0.0)
    at_nonzero = where(eq(zeros, 0), rest, 0.0) / nonzero
    return expand_reduced(g, input.shape, dim, keepdim) * where(zero, at_zero, at_nonzero)


@export("dl", "Tensor", out=True, autocast="float32 result")
@op(
    infer=_infer_sum("prod"),
    kernel=Kernel(_run_prod, PRODUCT_REDUCTION.shaders, ("float32", "int64")),
    examples=(
        # Few elements: large products overflow, and hide second derivatives. Or enough that all overflow.
        *(case for case in AXES_EXAMPLES if case.shapes[0] not in ((7, 13), (67, 131), (2, 67, 131))),
        example((17, 131), dim=0),
        example((3, 5)),
        *EMPTY_EXAMPLES,
    ),
    grad=_prod_gradient,
)
def prod(input: Array, dim: Dims = None, keepdim: bool = False, *, dtype: DTypeLike = None) -> Array:
    """The product of the elements along axes.

    Second derivatives are those for elements other than 0.

    Args:
        input: any shape and dtype.
        dim: an axis or several; all by default.
        keepdim: whether the axes stay, with size 1.
        dtype: of the result; by default the input's, and int64 for bool and integers.

    Returns:
        The input's shape without the axes; 1 where there is nothing to multiply.

    Raises:
        ArgumentError: there is no such axis, or it is named twice.
        DTypeError: tensors cannot have that dtype.

    Example:
        >>> import dl4all as dl
        >>> dl.prod(dl.tensor([[1.0, 2.0], [3.0, 4.0]]), dim=0).tolist()
        [3.0, 8.0]
    """
    axes = axes_of("prod", dim, input.ndim)
    return input.prod(axis=axes, keepdims=keepdim, dtype=sum_dtype("prod", input, dtype))


def _fold_prod(input: TensorBase, *, dim: Any, keepdim: bool, dtype: Any) -> Any:
    found = repetition(input, named_axes(input, dim=dim))
    if found is None:
        return None
    result_dtype = sum_dtype("prod", input, dtype)
    if result_dtype in HALVES:  # powers of what is rounded would be far off
        return cast(
            _power(prod(found.elements, dim, keepdim, dtype="float32"), found.times), result_dtype.name
        )
    return _power(prod(found.elements, dim, keepdim, dtype=result_dtype), found.times)


def _power(base: Any, times: int) -> Any:
    """The product of so many factors, by squares: integers wrap, and signs are right."""
    result = None
    while times:
        if times % 2:
            result = base if result is None else mul(result, base)
        base, times = mul(base, base) if times > 1 else base, times // 2
    return result


prod.define_fold(_fold_prod)
