"""The compiled kernels of matmul and linear: what product their operands are."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dl4all.host_kernels.lib.elements import memory_type
from dl4all.host_kernels.linalg.bfloat16_products import bfloat16_launch, multiplies
from dl4all.host_kernels.linalg.gemm import FEW_ROWS, Product, product_launch
from dl4all.ops.core.dtypes import BFLOAT16
from dl4all.ops.core.kernels.host_kernel import ArrayLayout, HostLaunch, host_kernel
from dl4all.ops.core.kernels.launch import NoKernel
from dl4all.ops.core.strides import merge_axes
from dl4all.ops.core.tensor_base import Shape

DTYPES = ("float32", "float64", "float16", "bfloat16")
MAX_BATCH_AXES = 2  # that cannot be merged


@host_kernel("matmul")
def prepare_matmul(out: ArrayLayout, input: ArrayLayout, other: ArrayLayout) -> HostLaunch:
    """
    Raises:
        NoKernel: other dtypes, sums of nothing, or a batch whose axes cannot be merged to two.
    """
    _check(out, input, other)
    a_shape, a_strides = input.shape, input.strides
    b_shape, b_strides = other.shape, other.strides
    if len(a_shape) == 1:
        a_shape, a_strides = (1, *a_shape), (0, *a_strides)
    if len(b_shape) == 1:
        b_shape, b_strides = (*b_shape, 1), (*b_strides, 0)
    batch = np.broadcast_shapes(a_shape[:-2], b_shape[:-2])
    rows = (a_shape[-2], b_shape[-1], a_shape[-1], *a_strides[-2:], *b_strides[-2:])
    steps = [
        _expanded(batch, shape, strides) for shape, strides in ((a_shape, a_strides), (b_shape, b_strides))
    ]
    return _launch(_batched(Product(*rows), batch, steps), out, bias=False)


@host_kernel("linear")
def prepare_linear(
    out: ArrayLayout, input: ArrayLayout, weight: ArrayLayout, bias: ArrayLayout | None
) -> HostLaunch:
    """
    Raises:
        NoKernel: other dtypes, sums of nothing, or rows whose axes cannot be merged to three.
    """
    _check(out, input, weight, *(() if bias is None else (bias,)))
    if bias is not None and not bias.is_contiguous():
        raise NoKernel("a bias with gaps")
    (n, k), (b_column, b_row) = weight.shape, weight.strides
    # The last of the merged axes has the rows of a product, those before it are its batch.
    shape, [strides] = merge_axes(input.shape[:-1], [input.strides[:-1]])
    rows, a_row = (shape[-1], strides[-1]) if shape else (1, 0)
    problem = Product(rows, n, k, a_row, input.strides[-1], b_row, b_column)
    steps = [strides[:-1], (0,) * len(shape[:-1])]
    return _launch(_batched(problem, shape[:-1], steps), out, bias=bias is not None)


@host_kernel("int8_product")
def prepare_int8_product(reads: Sequence[ArrayLayout], writes: Sequence[ArrayLayout]) -> HostLaunch:
    """The products of rows of float32 with rows of int8.

    Raises:
        NoKernel: there are many rows, or operands have gaps.
    """
    (x, weight), (out,) = reads, writes
    if not all(layout.is_contiguous() for layout in (x, weight, out)):
        raise NoKernel("operands with gaps")
    (m, k), (n, _) = x.shape, weight.shape
    return product_launch(Product(m, n, k, k, 1, 1, k), "float", bias=False, right="i8")


def _launch(problem: Product, out: ArrayLayout, *, bias: bool) -> HostLaunch:
    """
    Raises:
        NoKernel: see :func:`product_launch`.
    """
    m, n, k = problem[:3]
    if out.dtype == BFLOAT16 and problem.matrices == 1 and min(m, n) >= FEW_ROWS and multiplies():
        a, b = (problem.a_row, problem.a_column), (problem.b_column, problem.b_row)
        launch = bfloat16_launch(m, n, k, a, b, bias)
        if launch is not None:
            return launch
    return product_launch(problem, memory_type(out.dtype), bias=bias)


def _check(out: ArrayLayout, *operands: ArrayLayout) -> None:
    """
    Raises:
        NoKernel
    """
    if out.dtype.name not in DTYPES or any(operand.dtype != out.dtype for operand in operands):
        raise NoKernel("products of other dtypes")
    if any(0 in operand.shape for operand in operands):
        raise NoKernel("sums of nothing")


def _expanded(batch: Shape, shape: Shape, strides: Shape) -> Shape:
    """The strides of an operand's leading axes, broadcast to the batch."""
    lead = shape[:-2]
    return (0,) * (len(batch) - len(lead)) + tuple(
        0 if size == 1 else stride for size, stride in zip(lead, strides, strict=False)
    )


def _batched(product: Product, batch: Shape, steps: list[Shape]) -> Product:
    """The product with a batch of this shape; as one product, if all matrices on the left meet the same one.

    Raises:
        NoKernel
    """
    shape, (a_steps, b_steps) = merge_axes(batch, steps)
    if product.m == 1 and shape:  # any distance of rows will do
        product = product._replace(a_row=a_steps[-1])
    if shape and b_steps[-1] == 0 and a_steps[-1] == product.m * product.a_row:
        product = product._replace(m=product.m * shape[-1])
        shape, a_steps, b_steps = shape[:-1], a_steps[:-1], b_steps[:-1]
    if len(shape) > MAX_BATCH_AXES:
        raise NoKernel("a batch of many axes")
    outer, inner = (1, 1, *shape)[-2:]
    (a_outer, a_inner), (b_outer, b_inner) = ((0, 0, *step)[-2:] for step in (a_steps, b_steps))
    return product._replace(
        matrices=outer * inner,
        inner=inner,
        a_outer=a_outer,
        a_inner=a_inner,
        b_outer=b_outer,
        b_inner=b_inner,
    )
