"""Sums, means and products over axes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dl4all.errors import DTypeError, ShapeError
from dl4all.ops.core.exports import export
from dl4all.ops.core.launch import NoKernel
from dl4all.ops.core.op import Kernel, Result, example, op, primitives
from dl4all.ops.core.tape import repeated_axes
from dl4all.ops.core.tensor_base import Array, Shape, TensorBase
from dl4all.ops.elementwise.comparison import eq
from dl4all.ops.elementwise.logic import where
from dl4all.ops.memory.views import expand, reshape
from dl4all.ops.reduce.reduction_kernel import Reduction, axes_of, named, reduced, widened

SUM = Reduction("SUM", "s.value / p.number")
COUNT = Reduction("COUNT", "s.count", wide=True)

AXES = (
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
"""What every reduction over any axes is tried on."""
EMPTY = (example((0, 5), dim=0), example((5, 0), dim=None))
"""Nothing to reduce: only for those that have a value for it."""


PIECE = 16  # rows that NumPy may add one after the other
RUN = 32768  # elements side by side, whose sum NumPy makes of blocks


def total(x: Any, axes: tuple[int, ...], keepdim: bool, dtype: np.dtype[Any]) -> Any:
    """NumPy's sum, of long axes after folding them: its own loses digits, and in float16 most of them."""
    shape = reduced(x.shape, axes, keepdim)
    if dtype == np.float16:
        return total(x, axes, keepdim, np.dtype(np.float32)).astype(dtype)
    if dtype.kind == "f" and x.size > RUN:
        if len(axes) == x.ndim and x.flags.c_contiguous:
            x, axes = x.reshape(-1), (0,)
        rows = [axis for axis in axes if x.strides[axis] != x.itemsize]
        while math.prod(x.shape[axis] for axis in rows) > PIECE:
            x = _folded(np.asarray(x, dtype), max(rows, key=lambda axis: x.shape[axis]))
        for axis in axes:
            while x.shape[axis] > RUN:
                x = _folded(np.asarray(x, dtype), axis)
    return np.sum(x, axis=axes, dtype=dtype).reshape(shape)


def _folded(x: Any, axis: int) -> Any:
    """An array with half as many rows, of the same sum."""
    x = np.moveaxis(x, axis, 0)
    half = len(x) // 2
    folded = x[:half] + x[half : 2 * half]
    if len(x) % 2:
        folded[0] += x[-1]
    return np.moveaxis(folded, 0, axis)


def count(shape: Shape, axes: tuple[int, ...]) -> int:
    """How many elements are reduced to one."""
    return math.prod(shape[i] for i in axes)


def spread(g: Any, shape: Shape, dim: Any, keepdim: bool) -> Any:
    """A reduction's gradient repeated along the axes that are gone."""
    axes = axes_of("sum", dim, len(shape))
    return expand(g if keepdim else reshape(g, reduced(shape, axes, True)), *shape)


def _sum_to_shape(input: TensorBase, shape: Shape) -> Result:
    wanted = tuple(shape)
    missing = len(input.shape) - len(wanted)
    if missing < 0 or any(
        size not in (1, wide) for size, wide in zip(wanted, input.shape[missing:], strict=True)
    ):
        raise ShapeError(f"[sum_to] shape {wanted} does not broadcast to the input's {input.shape}")
    return wanted, input.dtype


def _sum_to_run(out: TensorBase, input: TensorBase, shape: Shape) -> None:
    SUM(out, input, repeated_axes(tuple(shape), input.shape))


@export()
@op(
    infer=_sum_to_shape,
    kernel=Kernel(_sum_to_run, SUM.shaders),
    examples=(
        example((5, 3, 7), shape=(3, 1)),
        example((5, 3, 7), shape=()),
        example((5, 3), shape=(5, 3)),
        example((0, 3), shape=(1, 3)),
        example((3, 5, 7, 2), shape=(5, 1, 1)),
        example((131, 67), shape=(67,)),
    ),
    grad=lambda g, shapes: expand(g, *shapes[0]),
)
def sum_to(input: Array, shape: Any) -> Array:
    """Sums over the axes along which `shape` was repeated: what undoes broadcasting in a gradient.

    Args:
        input: any shape and dtype.
        shape: one that broadcasts to the input's.

    Returns:
        That shape, in the input's dtype.

    Raises:
        ShapeError: it does not broadcast to the input's.

    Example:
        >>> import dl4all as dl
        >>> dl.ops.sum_to(dl.tensor([[1.0, 2.0], [3.0, 4.0]]), (2,)).tolist()
        [4.0, 6.0]
    """
    return total(input, repeated_axes(tuple(shape), input.shape), True, input.dtype).reshape(shape)


primitives.sum_to = sum_to


def _sum_shape(input: TensorBase, *, dim: Any, keepdim: bool, dtype: Any) -> Result:
    axes = axes_of("sum", dim, len(input.shape))
    return reduced(input.shape, axes, keepdim), widened(input.dtype) if dtype is None else named("sum", dtype)


def _sum_run(out: TensorBase, input: TensorBase, *, dim: Any, keepdim: bool, dtype: Any) -> None:
    axes = axes_of("sum", dim, len(input.shape))
    if out.dtype == np.float32:
        SUM(out, input, axes)
    elif input.dtype == np.bool_:
        COUNT(out, input, axes)
    else:
        raise NoKernel(
            f"devices do not add {input.dtype} up as {out.dtype}; convert with .float() to stay there"
        )


@export("dl", "Tensor")
@op(
    infer=_sum_shape,
    kernel=Kernel(_sum_run, (*SUM.shaders, *COUNT.shaders), ("float32", "int64")),
    examples=(*AXES, *EMPTY),
    grad=lambda g, shapes, dim, keepdim: spread(g, shapes[0], dim, keepdim),
)
def sum(input: Array, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Array:
    """The sum of the elements along axes.

    Float32 sums keep their digits: on devices, and in NumPy along the last axis, they are taken in pieces.

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
    wanted = widened(input.dtype) if dtype is None else named("sum", dtype)
    return total(input, axes_of("sum", dim, input.ndim), keepdim, wanted)


def _mean_dtype(input: Any, dtype: Any) -> np.dtype[Any]:
    found = input.dtype if dtype is None else named("mean", dtype)
    if found.kind != "f":
        raise DTypeError(f"[mean] expected floats of one dtype, got {found}; pass dtype=dl.float32")
    return np.dtype(found)


def _mean_shape(input: TensorBase, *, dim: Any, keepdim: bool, dtype: Any) -> Result:
    axes = axes_of("mean", dim, len(input.shape))
    return reduced(input.shape, axes, keepdim), _mean_dtype(input, dtype)


def _mean_run(out: TensorBase, input: TensorBase, *, dim: Any, keepdim: bool, dtype: Any) -> None:
    axes = axes_of("mean", dim, len(input.shape))
    SUM(out, input, axes, count(input.shape, axes) or math.nan)


def _mean_grad(g: Any, shapes: Any, dim: Any, keepdim: bool) -> Any:
    shape = shapes[0]
    each = g / (count(shape, axes_of("mean", dim, len(shape))) or math.nan)
    return spread(each, shape, dim, keepdim)


@export("dl", "Tensor")
@op(
    infer=_mean_shape,
    kernel=Kernel(_mean_run, SUM.shaders),
    examples=(*AXES, *EMPTY),
    grad=_mean_grad,
)
def mean(input: Array, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Array:
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
    wanted = _mean_dtype(input, dtype)
    wide = np.result_type(wanted, np.float32)  # float16 has no room for the sum, nor for the count
    added = total(input, axes, keepdim, wide)
    return (added / np.asarray(count(input.shape, axes) or math.nan, wide)).astype(wanted)


PRODUCT = Reduction("PRODUCT", "s.value")


def _prod_shape(input: TensorBase, *, dim: Any, keepdim: bool, dtype: Any) -> Result:
    axes = axes_of("prod", dim, len(input.shape))
    return reduced(input.shape, axes, keepdim), widened(input.dtype) if dtype is None else named(
        "prod", dtype
    )


def _prod_run(out: TensorBase, input: TensorBase, *, dim: Any, keepdim: bool, dtype: Any) -> None:
    PRODUCT(out, input, axes_of("prod", dim, len(input.shape)))


def _prod_grad(g: Any, input: Any, dim: Any, keepdim: bool) -> Any:
    """The product of the others: with a zero among them 0, so that it needs no division by zero."""
    zero = eq(input, 0)
    others = where(zero, 1.0, input)
    zeros = sum(zero, dim, keepdim=True, dtype=input.dtype)
    rest = prod(others, dim, keepdim=True)
    at_zero = where(eq(zeros, 1), rest, 0.0)
    elsewhere = where(eq(zeros, 0), rest, 0.0) / others
    return spread(g, input.shape, dim, keepdim) * where(zero, at_zero, elsewhere)


@export("dl", "Tensor")
@op(
    infer=_prod_shape,
    kernel=Kernel(_prod_run, PRODUCT.shaders),
    examples=(
        # Few elements: large products overflow, and hide second derivatives. Or so many that all overflow.
        *(case for case in AXES if case.shapes[0] not in ((7, 13), (67, 131), (2, 67, 131))),
        example((17, 131), dim=0),
        example((3, 5)),
        *EMPTY,
    ),
    grad=_prod_grad,
)
def prod(input: Array, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Array:
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
    wanted = widened(input.dtype) if dtype is None else named("prod", dtype)
    return np.prod(input, axis=axes_of("prod", dim, input.ndim), keepdims=keepdim, dtype=wanted)
