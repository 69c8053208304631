"""Running sums and products along an axis."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dl4all.ops.core import launch
from dl4all.ops.core.checks import check_float
from dl4all.ops.core.exports import export
from dl4all.ops.core.launch import ceil_div, pack, run
from dl4all.ops.core.op import REGISTRY, Kernel, Result, empty, example, op, primitives
from dl4all.ops.core.tensor_base import Array, TensorBase
from dl4all.ops.elementwise.arithmetic import mul, true_divide
from dl4all.ops.elementwise.comparison import eq, gt
from dl4all.ops.elementwise.logic import where
from dl4all.ops.memory.conversion import cast
from dl4all.ops.memory.views import contiguous
from dl4all.ops.reduce.reduction_kernel import BUSY, named, one_axis, widened
from dl4all.ops.reduce.row_kernels import STEPS, TOGETHER, choose, four_at_once, row_shaders

LEAST = 1024  # elements that are worth a slice of their own
SUMS, TOTALS, SLICES = (
    row_shaders("reduce/scan.comp", PRODUCTS=0, STARTS=starts, TOTALS=totals)
    for starts, totals in ((0, 0), (0, 1), (1, 0))
)
PRODUCTS = row_shaders("reduce/scan.comp", PRODUCTS=1, STARTS=0, TOTALS=0)
SUM_SHADERS = tuple(code for shaders in (SUMS, TOTALS, SLICES) for code in shaders.values())
EXAMPLES = (
    example((7, 13), dim=1),
    example((5, 3, 7), dim=1),
    example((131, 5), dim=0),
    example((3, 257), dim=-1),
    example((3, 260), dim=-1),
    example((5003,), dim=0),
    example((2, 5004), dim=1),
    example((3, 1), dim=1),
    example((), dim=0),
    example((0, 5), dim=1),
    example((5, 0), dim=1),
)


def _scan(products: bool, backwards: bool, out: TensorBase, input: TensorBase, dim: int) -> None:
    x = contiguous(input if input.dtype == np.float32 else primitives.cast(input, "float32"))
    shape = out.shape or (1,)
    axis = one_axis("cumsum", dim, len(shape))
    size, inner = shape[axis], math.prod(shape[axis + 1 :])
    rows = out.numel() // size
    # Products are 0 or infinite long before they are worth slices.
    slices = 1 if products else max(1, min(ceil_div(BUSY, rows), size // LEAST))
    if inner >= TOGETHER and not products and out.device.info.short_subgroups:
        slices = max(slices, ceil_div(size, STEPS))  # each is one invocation's
    slice = ceil_div(size, slices)
    by_four = four_at_once(size, inner, x)
    code, width, lanes = choose(PRODUCTS if products else SUMS, by_four, inner, slice, out.device)
    slice = ceil_div(slice, width)
    slices = ceil_div(size // width, slice)
    lanes = max(lanes, 1)
    tiles = ceil_div(rows, lanes)
    columns = min(tiles, launch.STRIDED_GRID_CAP)
    grid = columns, slices, ceil_div(tiles, columns)
    push = pack(rows, size // width, inner, x.offset // width, lanes, columns, slices, slice, int(backwards))
    if slices == 1:
        run(code, grid, push, x, out)
        return
    totals, starts = (empty(type(out).result_class, (rows, slices), out.dtype, out.device) for _ in range(2))
    run(choose(TOTALS, by_four, inner, slice * width, out.device).code, grid, push, x, totals)
    columns = min(rows, launch.STRIDED_GRID_CAP)
    every = pack(rows, slices, 1, 0, 1, columns, 1, slices, 0)
    run(SUMS[False, False], (columns, 1, ceil_div(rows, columns)), every, totals, starts)
    run(choose(SLICES, by_four, inner, slice * width, out.device).code, grid, push, x, starts, out)


def _flat(f: Any, x: Any, dim: int, dtype: Any) -> Any:
    """NumPy's function of an array with at least one axis; it goes on from one element to the next."""
    wide = np.float64 if dtype.kind == "f" else dtype
    return f(x.reshape(x.shape or (1,)), axis=dim, dtype=wide).reshape(x.shape).astype(dtype, copy=False)


def _shape(name: str, input: TensorBase, dim: Any, dtype: Any) -> Result:
    one_axis(name, dim, len(input.shape))
    return input.shape, widened(input.dtype) if dtype is None else named(name, dtype)


def _backward_shape(input: TensorBase, *, dim: int) -> Result:
    check_float("cumsum_backward", input)
    one_axis("cumsum_backward", dim, len(input.shape))
    return input.shape, input.dtype


@export()
@op(
    infer=_backward_shape,
    kernel=Kernel(lambda out, input, dim: _scan(False, True, out, input, dim), SUM_SHADERS),
    examples=EXAMPLES,
    grad=lambda g, dim: REGISTRY["cumsum"](g, dim),
)
def cumsum_backward(input: Array, dim: int) -> Array:
    """The gradient of :func:`cumsum`: the sums of all elements from each one on.

    Args:
        input: floats of any shape.
        dim: the axis.

    Returns:
        The input's shape.

    Raises:
        ArgumentError: there is no such axis.
        DTypeError: the input is not of floats.

    Example:
        >>> import dl4all as dl
        >>> dl.ops.cumsum_backward(dl.tensor([1.0, 2.0, 3.0]), 0).tolist()
        [6.0, 5.0, 3.0]
    """
    x = input.reshape(input.shape or (1,))
    return np.flip(_flat(np.cumsum, np.flip(x, dim), dim, input.dtype), dim).reshape(input.shape)


@export("dl", "Tensor", "Tensor_")
@op(
    infer=lambda input, dim, dtype: _shape("cumsum", input, dim, dtype),
    kernel=Kernel(lambda out, input, dim, dtype: _scan(False, False, out, input, dim), SUM_SHADERS),
    examples=EXAMPLES,
    grad=lambda g, dim: cumsum_backward(g, dim),
)
def cumsum(input: Array, dim: int, *, dtype: Any = None) -> Array:
    """The sums of all elements up to each one along an axis.

    Args:
        input: any shape and dtype.
        dim: the axis.
        dtype: of the result; by default the input's, and int64 for bool and integers.

    Returns:
        The input's shape.

    Raises:
        ArgumentError: there is no such axis.
        DTypeError: tensors cannot have that dtype.

    Example:
        >>> import dl4all as dl
        >>> dl.cumsum(dl.tensor([1.0, 2.0, 3.0]), 0).tolist()
        [1.0, 3.0, 6.0]
    """
    return _flat(np.cumsum, input, dim, widened(input.dtype) if dtype is None else named("cumsum", dtype))


def _cumprod_grad(g: Any, input: Any, result: Any, dim: int) -> Any:
    """Before the first zero by dividing; at it, the products without it; after it nothing comes back."""
    zero = eq(input, 0)
    zeros = cumsum(cast(zero, input.dtype.name), dim)
    none, here = eq(zeros, 0), mul(cast(zero, input.dtype.name), cast(eq(zeros, 1), input.dtype.name))
    before = true_divide(cumsum_backward(mul(g, result), dim), where(zero, 1.0, input))
    without = cumprod(where(gt(here, 0), 1.0, input), dim)
    at_zero = cumsum_backward(where(none, 0.0, mul(g, without)), dim)
    return where(none, before, where(gt(here, 0), at_zero, 0.0))


@export("dl", "Tensor", "Tensor_")
@op(
    infer=lambda input, dim, dtype: _shape("cumprod", input, dim, dtype),
    kernel=Kernel(
        lambda out, input, dim, dtype: _scan(True, False, out, input, dim), tuple(PRODUCTS.values())
    ),
    # Few elements, whose products do not overflow.
    examples=(
        *(case for case in EXAMPLES if case.shapes[0] in ((7, 13), (5, 3, 7), (3, 1), (), (0, 5), (5, 0))),
        example((11, 5), dim=0),
        example((7, 12), dim=1),
    ),
    grad=_cumprod_grad,
)
def cumprod(input: Array, dim: int, *, dtype: Any = None) -> Array:
    """The products of all elements up to each one along an axis.

    Second derivatives are those for elements other than 0.

    Args:
        input: any shape and dtype.
        dim: the axis.
        dtype: of the result; by default the input's, and int64 for bool and integers.

    Returns:
        The input's shape.

    Raises:
        ArgumentError: there is no such axis.
        DTypeError: tensors cannot have that dtype.

    Example:
        >>> import dl4all as dl
        >>> dl.cumprod(dl.tensor([1.0, 2.0, 3.0]), 0).tolist()
        [1.0, 2.0, 6.0]
    """
    return _flat(np.cumprod, input, dim, widened(input.dtype) if dtype is None else named("cumprod", dtype))
