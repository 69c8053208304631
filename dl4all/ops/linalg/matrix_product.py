"""matmul and linear."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import dl4all.ops.linalg.cooperative_matrix  # noqa: F401  # puts itself into gemm
from dl4all.errors import ShapeError
from dl4all.ops.core.arguments.tensor_like import TensorLike, TensorLikeFound
from dl4all.ops.core.checks import check_numbers
from dl4all.ops.core.exports import export
from dl4all.ops.core.op import Kernel, Result, example, op
from dl4all.ops.core.tensor_base import Array, Shape, TensorBase
from dl4all.ops.elementwise.arithmetic import add
from dl4all.ops.linalg.dot_product import DOT_SHADERS, run_dot
from dl4all.ops.linalg.gemm import GEMM_SHADERS
from dl4all.ops.linalg.matvec import MATVEC
from dl4all.ops.linalg.strided_matmul import strided_matmul
from dl4all.ops.memory.views import contiguous, reshape, transpose
from dl4all.ops.reduce.repetition import fold_product
from dl4all.ops.reduce.sums import sum_to


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


def _infer_matmul(input: TensorBase, other: TensorBase) -> Result:
    check_numbers("matmul", input, other)
    return _matmul_shapes(input.shape, other.shape)[2], input.dtype


def _run_matmul(out: TensorBase, input: TensorBase, other: TensorBase) -> None:
    if len(input.shape) == len(other.shape) == 1:
        run_dot(out, input, other)
        return
    left, right, _ = _matmul_shapes(input.shape, other.shape)
    row = input.strides if len(input.shape) == len(left) else (0, *input.strides)
    column = other.strides if len(other.shape) == len(right) else (*other.strides, 0)
    a = input.strided_view(left, row, input.offset)
    strided_matmul(out, a, other.strided_view(right, column, other.offset))


def _matmul_flops(input: TensorBase, other: TensorBase) -> int:
    return 2 * math.prod(_matmul_shapes(input.shape, other.shape)[2]) * input.shape[-1]


def _matmul_input_gradient(g: Any, other: Any, shapes: tuple[Shape, Shape]) -> Any:
    left, right, _ = _matmul_shapes(*shapes)
    if len(right) == 2:  # the whole batch meets one matrix: one product
        rows = math.prod(left[:-1])
        gradient = matmul(_reshape(g, (rows, right[1])), transpose(_reshape(other, right), 0, 1))
    else:
        gradient = matmul(_reshape_product(g, left, right), transpose(_reshape(other, right), -1, -2))
    return _reshape(_sum_batch(gradient, left), shapes[0])


def _matmul_other_gradient(g: Any, input: Any, shapes: tuple[Shape, Shape]) -> Any:
    left, right, _ = _matmul_shapes(*shapes)
    if len(right) == 2:
        rows = math.prod(left[:-1])
        gradient = matmul(transpose(_reshape(input, (rows, left[-1])), 0, 1), _reshape(g, (rows, right[1])))
    else:
        gradient = matmul(transpose(_reshape(input, left), -1, -2), _reshape_product(g, left, right))
    return _reshape(_sum_batch(gradient, right), shapes[1])


def _reshape_product(g: Any, left: Shape, right: Shape) -> Any:
    """Insert the axes that products with vectors do not have."""
    return _reshape(g, (*np.broadcast_shapes(left[:-2], right[:-2]), left[-2], right[-1]))


def _sum_batch(gradient: Any, shape: Shape) -> Any:
    """Sum over the broadcast axes of the batch, unless the product has summed over them."""
    return gradient if math.prod(gradient.shape) == math.prod(shape) else sum_to(gradient, shape)


def _reshape(tensor: Any, shape: Shape) -> Any:
    """Reshape, which may copy, only if the shape differs."""
    return tensor if tensor.shape == shape else reshape(tensor, *shape)


@export("dl", "Tensor", out=True, autocast="lower")
@op(
    infer=_infer_matmul,
    flops=_matmul_flops,
    kernel=Kernel(_run_matmul, (*GEMM_SHADERS, *DOT_SHADERS, *MATVEC.values())),
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
        example((1, 7), (7, 5)),
        example((13, 7), (7, 8)),
        example((7, 20), (20, 8)),
        example((9, 19), (19, 8)),
        example((7, 20), (20, 5)),
        example((3, 0), (0, 5)),
        example((0, 3), (3, 5)),
    ),
    grad=(_matmul_input_gradient, _matmul_other_gradient),
)
def matmul(input: Array, other: Array) -> Array:
    """Matrix product over the last two axes; axes before them broadcast.

    Args:
        input: floats or integers of shape (..., M, K) or (K,).
        other: of that dtype, shape (..., K, N) or (K,).

    Returns:
        Shape (..., M, N); without M or N if that operand is one-dimensional.

    Raises:
        ShapeError: the inner sizes differ or the leading axes do not broadcast.
        DTypeError: the operands are not numbers of one dtype.

    Example:
        >>> import dl4all as dl
        >>> dl.matmul(dl.tensor([[1.0, 2.0]]), dl.tensor([[3.0], [4.0]])).tolist()
        [[11.0]]
    """
    return _host_matmul(input, other)


matmul.define_fold(fold_product(matmul))


def _host_matmul(left: Any, right: Any) -> Any:
    """NumPy's matmul, as one product if all matrices on the left meet the same one on the right."""
    if right.ndim != 2 or left.ndim < 3 or not left.flags.c_contiguous:
        return np.matmul(left, right)
    rows = left.reshape(math.prod(left.shape[:-1]), left.shape[-1])
    return np.matmul(rows, right).reshape(*left.shape[:-1], right.shape[1])


class _VectorWeight(TensorLike):
    """Computes :func:`linear` with a weight of one axis, whose result has no features."""

    __slots__ = ()

    def call_op(self, op: Any, operands: list[Any], arguments: dict[str, Any]) -> Any:
        input, weight, bias = operands
        product = matmul(input, weight)
        return product if bias is None else add(product, bias)


def _infer_linear(input: TensorBase, weight: TensorBase, bias: TensorBase | None) -> Result:
    check_numbers("linear", input, weight, bias)
    if len(weight.shape) == 1:
        raise TensorLikeFound(_VectorWeight())
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


def run_linear(out: TensorBase, input: TensorBase, weight: TensorBase, bias: TensorBase | None) -> None:
    x = contiguous(input)
    w = weight if bias is None else contiguous(weight)
    b = None if bias is None else contiguous(bias)
    features, inner = w.shape
    matrix = x.strided_view((out.numel() // features, inner), (inner, 1), x.offset)
    strides = w.strides[::-1] if b is None else (1, inner)  # those of an empty weight may be others
    strided_matmul(out, matrix, w.strided_view((inner, features), strides, w.offset), b)


def _linear_flops(input: TensorBase, weight: TensorBase, bias: TensorBase | None) -> int:
    return 2 * input.numel() * weight.shape[0]


def _linear_weight_gradient(g: Any, input: Any, shapes: tuple[Shape, ...]) -> Any:
    features, inner = shapes[1]
    rows = math.prod(shapes[0][:-1])
    return matmul(transpose(_reshape(g, (rows, features)), 0, 1), _reshape(input, (rows, inner)))


@export("F", autocast="lower")
@op(
    infer=_infer_linear,
    flops=_linear_flops,
    kernel=Kernel(run_linear, (*MATVEC.values(), *GEMM_SHADERS)),
    examples=(
        example((1, 512), (1000, 512), (1000,)),
        example((7, 13), (5, 13), (5,)),
        example((2, 5003), (3, 5003), (3,)),
        example((2, 2, 8), (67, 8), None),
        example((2, 36), (5, 36), None),
        example((2, 36), (5, 36), (5,)),
        example((2, 13), (3, 13), None),
        example((1, 36), (5, 36), None),
        example((1, 13), (3, 13), None),
        example((1, 13), (3, 13), (3,)),
        example((9,), (4, 9), (4,)),
        example((67, 36), (29, 36), (29,)),
        example((5, 11, 7), (3, 7), None),
        example((3, 0), (5, 0), (5,)),
        example((0, 3), (5, 3), (5,)),
    ),
    grad=(lambda g, weight: matmul(g, weight), _linear_weight_gradient, lambda g: g),
)
def linear(input: Array, weight: Array, bias: Array | None = None) -> Array:
    """Affine map of the last axis: ``input @ weight.T + bias``.

    Args:
        input: floats or integers of shape (..., in).
        weight: shape (out, in), or (in,).
        bias: shape (out,), or None.

    Returns:
        Shape (..., out), or (...) of a weight of one axis.

    Raises:
        ShapeError, DTypeError

    Example:
        >>> import dl4all as dl
        >>> x, w = dl.tensor([[1.0, 2.0]]), dl.tensor([[3.0, 4.0], [5.0, 6.0]])
        >>> dl.nn.functional.linear(x, w, dl.tensor([0.5, 0.25])).tolist()
        [[11.5, 17.25]]
    """
    product = _host_matmul(input, weight.T)
    if bias is not None:
        product += bias
    return product
