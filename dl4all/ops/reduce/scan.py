"""Scans along an axis: cumsum and cumprod."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dl4all.ops.core.checks import check_float
from dl4all.ops.core.dtypes import FLOATS, kind_of, widened
from dl4all.ops.core.exports import export
from dl4all.ops.core.kernels import launch
from dl4all.ops.core.kernels.launch import ceil_div, run
from dl4all.ops.core.kernels.push_block import PushBlock
from dl4all.ops.core.op import Kernel, Result, empty, example, op, primitives
from dl4all.ops.core.tensor_base import Array, DTypeLike, TensorBase
from dl4all.ops.elementwise.arithmetic import mul, true_divide
from dl4all.ops.elementwise.comparison import eq, gt
from dl4all.ops.elementwise.logic import where
from dl4all.ops.memory.conversion import cast
from dl4all.ops.memory.views import contiguous
from dl4all.ops.reduce.reduction_kernel import BUSY_WORKGROUPS, one_axis, sum_dtype
from dl4all.ops.reduce.row_kernels import (
    MAX_STEPS_PER_INVOCATION,
    SUBGROUP_SIZE,
    TREE,
    choose_variant,
    reads_vec4,
    row_shaders,
)
from dl4all.ops.sorting.integer_sums import cumulative_sums

MIN_SLICE_ELEMENTS = 1024  # shorter slices are not worth a workgroup
SCAN_PUSH = PushBlock(
    "reduce/scan.comp",
    "uint rows, size, inner, x_offset, lanes, columns, slices, slice, backwards;",
)
CUMSUM, SLICE_TOTALS, CUMSUM_OF_SLICES = (
    row_shaders("reduce/scan.comp", PRODUCTS=0, STARTS=starts, TOTALS=totals)
    for starts, totals in ((0, 0), (0, 1), (1, 0))
)
CUMPROD = row_shaders("reduce/scan.comp", PRODUCTS=1, STARTS=0, TOTALS=0)
CUMSUM_SHADERS = tuple(
    code for shaders in (CUMSUM, SLICE_TOTALS, CUMSUM_OF_SLICES) for code in shaders.values()
)
SCAN_EXAMPLES = (
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


def _run_scan(
    out: TensorBase, input: TensorBase, dim: int, *, products: bool = False, backwards: bool = False
) -> None:
    x = contiguous(input if input.dtype in FLOATS else primitives.cast(input, "float32"))
    shape = out.shape or (1,)
    axis = one_axis("cumsum", dim, len(shape))
    size, inner = shape[axis], math.prod(shape[axis + 1 :])
    rows = out.numel() // size
    # Longer products are 0 or infinite, so slices are not worth their while.
    slices = 1 if products else max(1, min(ceil_div(BUSY_WORKGROUPS, rows), size // MIN_SLICE_ELEMENTS))
    if inner >= SUBGROUP_SIZE and not products and out.device.info.short_subgroups:
        slices = max(slices, ceil_div(size, MAX_STEPS_PER_INVOCATION))  # one for each invocation
    slice = ceil_div(size, slices)
    vec4 = reads_vec4(size, inner, x)
    code, width, lanes = choose_variant(CUMPROD if products else CUMSUM, vec4, inner, slice, out.device)
    slice = ceil_div(slice, width)
    slices = ceil_div(size // width, slice)
    lanes = max(lanes, 1)
    tiles = ceil_div(rows, lanes)
    columns = min(tiles, launch.STRIDED_GRID_CAP)
    grid = columns, slices, ceil_div(tiles, columns)
    push = SCAN_PUSH.pack(
        rows=rows,
        size=size // width,
        inner=inner,
        x_offset=x.offset // width,
        lanes=lanes,
        columns=columns,
        slices=slices,
        slice=slice,
        backwards=int(backwards),
    )
    if slices == 1:
        run(code, grid, push, x, out)
        return
    totals, starts = (
        empty(type(out).result_class, (rows, slices), widened(out.dtype), out.device) for _ in range(2)
    )
    code = choose_variant(SLICE_TOTALS, vec4, inner, slice * width, out.device).code
    run(code, grid, push, x, totals)
    columns = min(rows, launch.STRIDED_GRID_CAP)
    totals_push = SCAN_PUSH.pack(
        rows=rows,
        size=slices,
        inner=1,
        x_offset=0,
        lanes=1,
        columns=columns,
        slices=1,
        slice=slices,
        backwards=0,
    )
    run(CUMSUM[TREE, False], (columns, 1, ceil_div(rows, columns)), totals_push, totals, starts)
    code = choose_variant(CUMSUM_OF_SLICES, vec4, inner, slice * width, out.device).code
    run(code, grid, push, x, starts, out)


def _run_cumsum(out: TensorBase, input: TensorBase, dim: int, dtype: Any) -> None:
    if out.dtype == np.int64:
        cumulative_sums(out, input, one_axis("cumsum", dim, len(out.shape)))
    else:
        _run_scan(out, input, dim)


def _host_scan(f: Any, x: Any, dim: int, dtype: Any) -> Any:
    """NumPy's cumsum or cumprod `f`, in float64 as it goes element by element; 0-d arrays are vectors."""
    wide = np.float64 if kind_of(dtype) == "f" else dtype
    return f(x.reshape(x.shape or (1,)), axis=dim, dtype=wide).reshape(x.shape).astype(dtype, copy=False)


def _infer_scan(name: str, input: TensorBase, dim: Any, dtype: Any) -> Result:
    one_axis(name, dim, len(input.shape))
    return input.shape, sum_dtype(name, input, dtype)


@export("dl", "Tensor", "Tensor_", out=True, autocast="float32 result")
@op(
    infer=lambda input, dim, dtype: _infer_scan("cumsum", input, dim, dtype),
    kernel=Kernel(_run_cumsum, CUMSUM_SHADERS, ("float32", "int64")),
    examples=SCAN_EXAMPLES,
)
def cumsum(input: Array, dim: int, *, dtype: DTypeLike = None) -> Array:
    """Cumulative sums along an axis: for each element, the sum of it and all earlier ones.

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
    return _host_scan(np.cumsum, input, dim, sum_dtype("cumsum", input, dtype))


def _infer_cumsum_backward(input: TensorBase, *, dim: int) -> Result:
    check_float("cumsum_backward", input)
    one_axis("cumsum_backward", dim, len(input.shape))
    return input.shape, input.dtype


@export()
@op(
    infer=_infer_cumsum_backward,
    kernel=Kernel(lambda out, input, dim: _run_scan(out, input, dim, backwards=True), CUMSUM_SHADERS),
    examples=SCAN_EXAMPLES,
)
def cumsum_backward(input: Array, dim: int) -> Array:
    """The gradient of :func:`cumsum`: for each element, the sum of it and all later ones.

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
    return np.flip(_host_scan(np.cumsum, np.flip(x, dim), dim, input.dtype), dim).reshape(input.shape)


cumsum.defgrad(lambda g, dim: cumsum_backward(g, dim))
cumsum_backward.defgrad(lambda g, dim: cumsum(g, dim))


@export("dl", "Tensor", "Tensor_", out=True, autocast="float32 result")
@op(
    infer=lambda input, dim, dtype: _infer_scan("cumprod", input, dim, dtype),
    kernel=Kernel(
        lambda out, input, dim, dtype: _run_scan(out, input, dim, products=True), tuple(CUMPROD.values())
    ),
    # Few elements, whose products do not overflow.
    examples=(
        *(e for e in SCAN_EXAMPLES if e.shapes[0] in ((7, 13), (5, 3, 7), (3, 1), (), (0, 5), (5, 0))),
        example((11, 5), dim=0),
        example((7, 12), dim=1),
    ),
)
def cumprod(input: Array, dim: int, *, dtype: DTypeLike = None) -> Array:
    """Cumulative products along an axis: for each element, the product of it and all earlier ones.

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
    return _host_scan(np.cumprod, input, dim, sum_dtype("cumprod", input, dtype))


def _cumprod_gradient(g: Any, input: Any, result: Any, dim: int) -> Any:
    """The gradient: by division before the first zero, by products without it at that zero, 0 after it."""
    zero = eq(input, 0)
    zeros = cumsum(cast(zero, input.dtype.name), dim)
    before, at_zero = eq(zeros, 0), mul(cast(zero, input.dtype.name), cast(eq(zeros, 1), input.dtype.name))
    gradient_before = true_divide(cumsum_backward(mul(g, result), dim), where(zero, 1.0, input))
    products_without = cumprod(where(gt(at_zero, 0), 1.0, input), dim)
    gradient_at_zero = cumsum_backward(where(before, 0.0, mul(g, products_without)), dim)
    return where(before, gradient_before, where(gt(at_zero, 0), gradient_at_zero, 0.0))


cumprod.defgrad(_cumprod_gradient)
