"""Products of matrices."""

from __future__ import annotations

import math

import numpy as np

from dl4all.errors import ShapeError
from dl4all.ops.arithmetic import clone
from dl4all.ops.base import Array, Shape, TensorBase
from dl4all.ops.gemm import GEMM_SHADERS, Matrices, gemm
from dl4all.ops.launch import MOST_GROUPS, ceil_div, pack, run, shader
from dl4all.ops.memory import contiguous
from dl4all.ops.op import Kernel, Result, example, op
from dl4all.ops.window import check_float

LINEAR = {bias: shader("matmul/linear.comp", BIAS=int(bias)) for bias in (False, True)}
LINEAR_WORKGROUP = 64  # output features of one workgroup
LINEAR_ROWS = 4  # rows of the input that one invocation takes along


def _matmul_shapes(a: Shape, b: Shape) -> tuple[Shape, Shape, Shape]:
    """Operands as (..., M, K) and (..., K, N), and the shape of their product.

    Raises:
        ShapeError
    """
    if not a or not b:
        raise ShapeError(f"[matmul] operands need at least one axis, got {a} @ {b}")
    left = (1, *a) if len(a) == 1 else a
    right = (*b, 1) if len(b) == 1 else b
    if left[-1] != right[-2]:
        raise ShapeError(f"[matmul] inner sizes differ: {a} @ {b}")
    try:
        batch = np.broadcast_shapes(left[:-2], right[:-2])
    except ValueError:
        raise ShapeError(f"[matmul] batch axes do not broadcast: {a} @ {b}") from None
    rows = left[-2:-1] if len(a) > 1 else ()
    columns = right[-1:] if len(b) > 1 else ()
    return left, right, (*batch, *rows, *columns)


def _matmul_infer(input: TensorBase, other: TensorBase) -> Result:
    check_float("matmul", input, other)
    return _matmul_shapes(input.shape, other.shape)[2], input.dtype


def _matmul_run(out: TensorBase, input: TensorBase, other: TensorBase) -> None:
    left_shape, right_shape, _ = _matmul_shapes(input.shape, other.shape)
    m, k, n = left_shape[-2], left_shape[-1], right_shape[-1]
    batch = np.broadcast_shapes(left_shape[:-2], right_shape[:-2])
    a = input.as_strided(left_shape, _row_strides(input, left_shape), input.offset)
    b = other.as_strided(right_shape, _column_strides(other, right_shape), other.offset)
    a, a_step = _rows_apart(a, batch)
    b, b_step = _rows_apart(b, batch)
    gemm(
        out,
        a,
        b,
        None,
        Matrices(
            m=m, n=n, k=k,
            lda=a.strides[-2], ldb=b.strides[-2], ldc=n,
            a_offset=a.offset, b_offset=b.offset,
            batch=math.prod(batch), a_step=a_step, b_step=b_step, c_step=m * n,
        ),
    )  # fmt: skip


def _row_strides(tensor: TensorBase, shape: Shape) -> Shape:
    return tensor.strides if len(tensor.shape) == len(shape) else (0, *tensor.strides)


def _column_strides(tensor: TensorBase, shape: Shape) -> Shape:
    return tensor.strides if len(tensor.shape) == len(shape) else (*tensor.strides, 1)


def _rows_apart(tensor: TensorBase, batch: Shape) -> tuple[TensorBase, int]:
    """The operand with rows of adjacent elements, and how far apart its matrices are.

    A copy is made where the memory is ordered differently; one matrix for the whole batch is not
    repeated.
    """
    if tensor.strides[-1] != 1 and tensor.shape[-1] != 1:
        tensor = clone(tensor)
    count = math.prod(tensor.shape[:-2])
    if count == 1:
        return tensor, 0
    rows, columns = tensor.shape[-2:]
    if tensor.shape[:-2] != batch:
        missing = len(batch) - (len(tensor.shape) - 2)
        strides = (0,) * missing + tuple(
            0 if size == 1 else stride for size, stride in zip(tensor.shape, tensor.strides, strict=True)
        )
        tensor = clone(tensor.as_strided((*batch, rows, columns), strides, tensor.offset))
    tensor = contiguous(tensor)
    return tensor, rows * columns


def _matmul_flops(input: TensorBase, other: TensorBase) -> int:
    return 2 * math.prod(_matmul_shapes(input.shape, other.shape)[2]) * input.shape[-1]


@op(
    infer=_matmul_infer,
    flops=_matmul_flops,
    kernel=Kernel(_matmul_run, GEMM_SHADERS),
    examples=(
        example((13, 7), (7, 11)),
        example((64, 36), (36, 200)),
        example((1, 1), (1, 1)),
        example((67,), (67, 5)),
        example((3, 67), (67,)),
        example((5,), (5,)),
        example((3, 5003), (5003, 7)),
        example((2, 3, 5, 7), (3, 7, 4)),
        example((2, 1, 5, 7), (3, 7, 4)),
        example((4, 5, 7), (7, 3)),
        example((3, 0), (0, 5)),
        example((0, 3), (3, 5)),
    ),
)
def matmul(input: Array, other: Array) -> Array:
    """Matrix product over the last two axes; axes before them broadcast.

    Args:
        input: floats of shape (..., M, K) or (K,).
        other: floats of shape (..., K, N) or (K,).

    Returns:
        Shape (..., M, N); the M or N of a one-dimensional operand is left out.

    Raises:
        ShapeError: the inner sizes differ or the axes in front do not broadcast.
        DTypeError: the operands are not floats of one dtype.

    Example:
        >>> import dl4all as dl
        >>> dl.matmul(dl.tensor([[1.0, 2.0]]), dl.tensor([[3.0], [4.0]])).tolist()
        [[11.0]]
    """
    return np.matmul(input, other)


def _linear_infer(input: TensorBase, weight: TensorBase, bias: TensorBase | None) -> Result:
    check_float("linear", input, weight, bias)
    if len(weight.shape) != 2:
        raise ShapeError(f"[linear] weight must have shape (out, in), got {weight.shape}")
    if not input.shape or input.shape[-1] != weight.shape[1]:
        raise ShapeError(
            f"[linear] the input's last axis must have the weight's {weight.shape[1]} features, "
            f"got {input.shape} for a weight of shape {weight.shape}"
        )
    if bias is not None and bias.shape != weight.shape[:1]:
        raise ShapeError(f"[linear] bias must have shape ({weight.shape[0]},), got {bias.shape}")
    return (*input.shape[:-1], weight.shape[0]), input.dtype


def _linear_run(out: TensorBase, input: TensorBase, weight: TensorBase, bias: TensorBase | None) -> None:
    x, w = contiguous(input), contiguous(weight)
    features, inner = w.shape
    rows = out.numel() // features
    tensors, offsets = [x, w], [x.offset, w.offset]
    if bias is not None:
        b = contiguous(bias)
        tensors.append(b)
        offsets.append(b.offset)
    groups = ceil_div(rows, LINEAR_ROWS)
    for first in range(0, groups, MOST_GROUPS):
        here = min(MOST_GROUPS, groups - first)
        run(
            LINEAR[bias is not None],
            (ceil_div(features, LINEAR_WORKGROUP), here, 1),
            pack(first, rows, features, inner, *offsets),
            *tensors,
            out,
            flops=2 * here * LINEAR_ROWS * features * inner,
        )


def _linear_flops(input: TensorBase, weight: TensorBase, bias: TensorBase | None) -> int:
    return 2 * input.numel() * weight.shape[0]


@op(
    infer=_linear_infer,
    flops=_linear_flops,
    kernel=Kernel(_linear_run, tuple(LINEAR.values())),
    examples=(
        example((1, 512), (1000, 512), (1000,)),
        example((7, 13), (5, 13), (5,)),
        example((2, 5003), (3, 5003), (3,)),
        example((2, 3, 8), (67, 8), None),
        example((9,), (4, 9), (4,)),
        example((3, 0), (5, 0), (5,)),
        example((0, 3), (5, 3), (5,)),
    ),
)
def linear(input: Array, weight: Array, bias: Array | None = None) -> Array:
    """Affine map of the last axis: ``input @ weight.T + bias``.

    Args:
        input: floats of shape (..., in).
        weight: shape (out, in).
        bias: shape (out,), or None.

    Returns:
        Shape (..., out).

    Raises:
        ShapeError, DTypeError

    Example:
        >>> import dl4all as dl
        >>> x, w = dl.tensor([[1.0, 2.0]]), dl.tensor([[3.0, 4.0], [5.0, 6.0]])
        >>> dl.nn.functional.linear(x, w, dl.tensor([0.5, 0.25])).tolist()
        [[11.5, 17.25]]
    """
    product = np.matmul(input, weight.T)
    return product if bias is None else product + bias
