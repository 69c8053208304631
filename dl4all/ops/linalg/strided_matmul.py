"""The matrix product of tensors, whatever way they lie in memory, copied only if no kernel can read them."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from dl4all.ops.core.strides import merge_axes
from dl4all.ops.core.tensor_base import Shape, TensorBase
from dl4all.ops.elementwise.arithmetic import clone
from dl4all.ops.linalg.gemm import Matrices, gemm


class Operand(NamedTuple):
    """Matrices in memory: their tensor, and how far apart their rows, or columns if turned, can lie."""

    tensor: TensorBase
    apart: dict[bool, int]  # by whether it is turned; what it lacks cannot be read
    step: int  # from one matrix of the batch to the next


def multiply(out: TensorBase, a: TensorBase, b: TensorBase, bias: TensorBase | None = None) -> None:
    """Fill `out` with ``a @ b``, for a (..., M, K) and b (..., K, N).

    With a `bias` of shape (N,), A has adjacent columns and B adjacent rows.
    """
    (m, k), n = a.shape[-2:], b.shape[-1]
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    left, right = _operand(a, batch, first=True), _operand(b, batch, first=False)
    if False not in left.apart and False not in right.apart:  # both turned, which the kernel has not
        if math.prod(a.shape) < math.prod(b.shape):
            left = _operand(clone(a), batch, first=True)
        else:
            right = _operand(clone(b), batch, first=False)
    turn_a = False not in left.apart
    # A column on its own is best read four elements at a time.
    turn_b = not turn_a and True in right.apart and (n == 1 or bias is not None or False not in right.apart)
    lda, count = left.apart[turn_a], math.prod(batch)
    if right.step == 0 and left.step == m * lda and not turn_a:  # one matrix for all of the batch
        m, count = m * count, 1
    problem = Matrices(
        m=m, n=n, k=k, lda=lda, ldb=right.apart[turn_b], ldc=n,
        a_offset=left.tensor.offset, b_offset=right.tensor.offset,
        batch=count, a_step=left.step, b_step=right.step, c_step=m * n,
        turn_a=turn_a, turn_b=turn_b, bias_row=0, bias_column=1,
    )  # fmt: skip
    gemm(out, left.tensor, right.tensor, bias, problem)


def _operand(tensor: TensorBase, batch: Shape, *, first: bool) -> Operand:
    """How the kernel can read an operand, which is copied if it cannot.

    Of a first operand with one row, and of a second one with one column, no other is ever read: any
    distance will do, and 0 lets four elements be read at a time.
    """
    rows, columns = tensor.shape[-2:]
    row, column = tensor.strides[-2:]
    apart: dict[bool, int] = {}
    if rows == 1:
        apart[False] = 0 if first else columns
    elif row >= columns:
        apart[False] = row
    if columns == 1:
        apart[True] = rows if first else 0
    elif column >= rows:
        apart[True] = column
    if column != 1 and columns != 1:
        apart.pop(False, None)
    if row != 1 and rows != 1:
        apart.pop(True, None)
    step = _step(tensor, batch)
    if apart and step is not None:
        return Operand(tensor, apart, step)
    if math.prod(tensor.shape[:-2]) == 1:
        return _operand(clone(tensor), batch, first=first)
    missing = len(batch) - (len(tensor.shape) - 2)
    strides = (0,) * missing + tuple(
        0 if size == 1 else stride for size, stride in zip(tensor.shape, tensor.strides, strict=True)
    )
    repeated = tensor.as_strided((*batch, rows, columns), strides, tensor.offset)
    return _operand(clone(repeated), batch, first=first)


def _step(tensor: TensorBase, batch: Shape) -> int | None:
    """How far apart the matrices lie; None if that differs."""
    missing = len(batch) - (len(tensor.shape) - 2)
    strides = (0,) * missing + tuple(
        0 if size == 1 else stride for size, stride in zip(tensor.shape[:-2], tensor.strides, strict=False)
    )
    _, [merged] = merge_axes(batch, [strides])
    return None if len(merged) > 1 else merged[0] if merged else 0
