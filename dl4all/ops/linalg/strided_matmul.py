"""Matrix products of strided tensors, which are copied only if the kernel cannot read them."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from dl4all.ops.core.strides import merge_axes
from dl4all.ops.core.tensor_base import Shape, TensorBase
from dl4all.ops.elementwise.arithmetic import clone
from dl4all.ops.linalg.gemm import GemmProblem, gemm
from dl4all.ops.linalg.matvec import MATVEC_MAX_ROWS, MAX_FEATURES, matvec


class MatrixOperand(NamedTuple):
    """The layout by which the kernel can read the matrices of a tensor."""

    tensor: TensorBase
    # The distance of rows under False, and of columns, for reading transposed, under True. A missing key
    # stands for a layout that the kernel cannot read.
    leading: dict[bool, int]
    step: int  # from one matrix of the batch to the next


def strided_matmul(out: TensorBase, a: TensorBase, b: TensorBase, bias: TensorBase | None = None) -> None:
    """Fill `out` with ``a @ b``, for a (..., M, K) and b (..., K, N).

    With a `bias` of shape (N,), A has adjacent columns and B adjacent rows.
    """
    (m, k), n = a.shape[-2:], b.shape[-1]
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    left, right = _operand(a, batch, first=True), _operand(b, batch, first=False)
    if False not in left.leading and False not in right.leading:  # the kernel does not read both transposed
        if math.prod(a.shape) < math.prod(b.shape):
            left = _operand(clone(a), batch, first=True)
        else:
            right = _operand(clone(b), batch, first=False)
    transpose_a = False not in left.leading
    # Transposed, a single column is read four elements at a time.
    transpose_b = (
        not transpose_a
        and True in right.leading
        and (n == 1 or bias is not None or False not in right.leading)
    )
    lda, count = left.leading[transpose_a], math.prod(batch)
    if right.step == 0 and left.step == m * lda and not transpose_a:  # one B for the whole batch
        m, count = m * count, 1
    ldb = right.leading[transpose_b]
    # The rows of both matrices lie along the sum, and none is repeated.
    if transpose_b and count == 1 and (m == 1 or lda == k) and (n == 1 or ldb == k):
        one, other = (
            matrix.tensor.strided_view((rows, k), (k, 1), matrix.tensor.offset)
            for matrix, rows in ((left, m), (right, n))
        )
        if n == 1 and bias is None and m <= MAX_FEATURES:
            matvec(out, other, one, None, 1)
            return
        if m <= MATVEC_MAX_ROWS and n <= MAX_FEATURES:
            matvec(out, one, other, bias, m)
            return
    problem = GemmProblem(
        m=m, n=n, k=k, lda=lda, ldb=ldb, ldc=n,
        a_offset=left.tensor.offset, b_offset=right.tensor.offset,
        batch=count, a_step=left.step, b_step=right.step, c_step=m * n,
        transpose_a=transpose_a, transpose_b=transpose_b, bias_row=0, bias_column=1,
    )  # fmt: skip
    gemm(out, left.tensor, right.tensor, bias, problem)


def _operand(tensor: TensorBase, batch: Shape, *, first: bool) -> MatrixOperand:
    """The operand as the kernel can read it, copied if necessary.

    If the first operand has one row, or the second one column, the kernel never goes on to the next: any
    leading dimension will do, and 0 allows it to read four elements at a time.
    """
    rows, columns = tensor.shape[-2:]
    row, column = tensor.strides[-2:]
    leading: dict[bool, int] = {}
    if rows == 1:
        leading[False] = 0 if first else columns
    elif row >= columns:
        leading[False] = row
    if columns == 1:
        leading[True] = rows if first else 0
    elif column >= rows:
        leading[True] = column
    if column != 1 and columns != 1:
        leading.pop(False, None)
    if row != 1 and rows != 1:
        leading.pop(True, None)
    step = _step(tensor, batch)
    if leading and step is not None:
        return MatrixOperand(tensor, leading, step)
    if math.prod(tensor.shape[:-2]) == 1:
        return _operand(clone(tensor), batch, first=first)
    expanded = tensor.strided_view((*batch, rows, columns), _expanded_strides(tensor, batch), tensor.offset)
    return _operand(clone(expanded), batch, first=first)


def _step(tensor: TensorBase, batch: Shape) -> int | None:
    """The distance between successive matrices of the batch; None if it is not the same for all."""
    _, [merged] = merge_axes(batch, [_expanded_strides(tensor, batch)[:-2]])
    return None if len(merged) > 1 else merged[0] if merged else 0


def _expanded_strides(tensor: TensorBase, batch: Shape) -> Shape:
    """The strides of the tensor broadcast to the batch: 0 along axes that are repeated."""
    missing = len(batch) - (len(tensor.shape) - 2)
    return (0,) * missing + tuple(
        0 if size == 1 else stride for size, stride in zip(tensor.shape, tensor.strides, strict=True)
    )
