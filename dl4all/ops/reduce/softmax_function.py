"""softmax, log_softmax and logsumexp, with their gradients."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from dl4all.errors import ArgumentError, ShapeError
from dl4all.ops.core.checks import check_float
from dl4all.ops.core.exports import export
from dl4all.ops.core.kernels.push_block import PushBlock
from dl4all.ops.core.op import Kernel, Result, example, op
from dl4all.ops.core.tensor_base import Array, Dims, Shape, TensorBase
from dl4all.ops.elementwise.arithmetic import add, mul, neg, sub
from dl4all.ops.elementwise.transcendental import exp
from dl4all.ops.reduce.reduction_kernel import Reduction, axes_of, reduced_shape
from dl4all.ops.reduce.repetition import repetition
from dl4all.ops.reduce.row_kernels import FORMS, ROW_PUSH, RowShaders, row_shaders, run_rows
from dl4all.ops.reduce.sums import (
    AXES_EXAMPLES,
    EMPTY_EXAMPLES,
    accurate_sum,
    expand_reduced,
    named_axes,
    sum,
)

PUSH = {
    1: PushBlock("reduce/softmax.comp", f"{ROW_PUSH} uint x_offset;"),
    2: PushBlock("reduce/softmax_backward.comp", f"{ROW_PUSH} uint g_offset, y_offset;"),
}
"""By the number of operands."""
SOFTMAX, LOG_SOFTMAX = (row_shaders("reduce/softmax.comp", FORMS, LOG=log) for log in (0, 1))
SOFTMAX_BACKWARD, LOG_SOFTMAX_BACKWARD = (
    row_shaders("reduce/softmax_backward.comp", FORMS, LOG=log) for log in (0, 1)
)
LOGSUMEXP_REDUCTION = Reduction("LOGSUMEXP", "logarithm(s)")
SHAPES_AND_DIMS: tuple[tuple[Shape, int], ...] = (
    ((3, 1000), -1), ((5, 12), 1), ((2, 5, 7), 1), ((2, 67, 131), 1), ((3001, 5), 1),
    ((13,), 0), ((4, 1), 1), ((), 0), ((0, 5), 1), ((5, 0), 1),
)  # fmt: skip
FORWARD_EXAMPLES = [example(shape, dim=dim) for shape, dim in SHAPES_AND_DIMS]
BACKWARD_EXAMPLES = [example(shape, shape, dim=dim) for shape, dim in SHAPES_AND_DIMS]


def _infer_same_shape(name: str) -> Callable[..., Result]:
    def infer(*operands: TensorBase, dim: Any) -> Result:
        check_float(name, *operands)
        shape = operands[0].shape
        rank = max(len(shape), 1)
        if not (isinstance(dim, int) and -rank <= dim < rank):
            raise ArgumentError(f"[{name}] dim {dim!r} is not an axis of shape {shape}")
        for operand in operands:
            if operand.shape != shape:
                raise ShapeError(f"[{name}] expected operands of one shape, got {shape} and {operand.shape}")
        return shape, operands[0].dtype

    return infer


def _row_kernel(shaders: RowShaders) -> Kernel:
    def run(out: TensorBase, *operands: TensorBase, dim: int) -> None:
        run_rows(shaders, PUSH[len(operands)], out, dim, *operands)

    return Kernel(run, tuple(shaders.values()))


def _along_axis(f: Callable[[Any], Any], x: Any) -> Any:
    """Apply `f` to an array, as a vector of one element if it is 0-d."""
    return f(x.reshape(x.shape or (1,))).reshape(x.shape) if x.size else np.empty_like(x)


def _sums(x: Any, dim: int) -> Any:
    """The sums along an axis, which stays with size 1: of float16 in float32."""
    return accurate_sum(x, (dim % x.ndim,), True, x.dtype)


@op(
    infer=_infer_same_shape("softmax"),
    kernel=_row_kernel(SOFTMAX),
    examples=FORWARD_EXAMPLES,
)
def softmax(input: Array, dim: int = -1) -> Array:
    """Exponentials of the elements along axis `dim`, divided by their sum.

    The largest element is subtracted first, so that no exponential overflows.

    Args:
        input: floats of any shape.
        dim: the axis along which the result sums to 1.

    Returns:
        The input's shape.

    Raises:
        ArgumentError: there is no such axis.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.functional.softmax(dl.tensor([0.0, 0.0, 0.0, 0.0]), dim=0).tolist()
        [0.25, 0.25, 0.25, 0.25]
    """

    def body(x: Any) -> Any:
        exponentials = np.exp(x - x.max(dim, keepdims=True))
        return exponentials / _sums(exponentials, dim)

    return _along_axis(body, input)


@export()
@op(
    infer=_infer_same_shape("softmax_backward"),
    kernel=_row_kernel(SOFTMAX_BACKWARD),
    examples=BACKWARD_EXAMPLES,
)
def softmax_backward(grad: Array, result: Array, dim: int) -> Array:
    """The gradient of :func:`softmax`: ``result * (grad - sum(grad * result))``.

    Args:
        grad: the gradient of the result, floats.
        result: that of the forward op, of the same shape.
        dim: the axis of the softmax.

    Returns:
        The same shape.

    Raises:
        ArgumentError: there is no such axis.
        ShapeError: the shapes differ.

    Example:
        >>> import dl4all as dl
        >>> dl.ops.softmax_backward(dl.tensor([1.0, 0.0]), dl.tensor([0.5, 0.5]), 0).tolist()
        [0.25, -0.25]
    """
    if grad.ndim == 0:
        return result * (grad - grad * result)
    return result * (grad - _sums(grad * result, dim))


def _softmax_second_gradient(g: Any, grad: Any, result: Any, dim: int) -> Any:
    """The gradient of :func:`softmax_backward` with respect to the result of softmax."""
    grad_sum, g_sum = (sum(mul(v, result), dim, keepdim=True) for v in (grad, g))
    return g * (grad - grad_sum) - grad * g_sum


softmax.defgrad(lambda g, result, dim: softmax_backward(g, result, dim))
softmax_backward.defgrad(lambda g, result, dim: softmax_backward(g, result, dim), _softmax_second_gradient)


@op(
    infer=_infer_same_shape("log_softmax"),
    kernel=_row_kernel(LOG_SOFTMAX),
    examples=FORWARD_EXAMPLES,
)
def log_softmax(input: Array, dim: int = -1) -> Array:
    """The logarithm of :func:`softmax`, accurate where softmax is too small for a float.

    Args:
        input: floats of any shape.
        dim: the axis along which the exponentials of the result sum to 1.

    Returns:
        The input's shape.

    Raises:
        ArgumentError: there is no such axis.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.functional.log_softmax(dl.tensor([1000.0, 0.0]), dim=0).tolist()
        [0.0, -1000.0]
    """

    def body(x: Any) -> Any:
        shifted = x - x.max(dim, keepdims=True)
        return shifted - np.log(_sums(np.exp(shifted), dim))

    return _along_axis(body, input)


@export()
@op(
    infer=_infer_same_shape("log_softmax_backward"),
    kernel=_row_kernel(LOG_SOFTMAX_BACKWARD),
    examples=BACKWARD_EXAMPLES,
)
def log_softmax_backward(grad: Array, result: Array, dim: int) -> Array:
    """The gradient of :func:`log_softmax`: ``grad - exp(result) * sum(grad)``.

    Args:
        grad: the gradient of the result, floats.
        result: that of the forward op, of the same shape.
        dim: the axis of the softmax.

    Returns:
        The same shape.

    Raises:
        ArgumentError: there is no such axis.
        ShapeError: the shapes differ.

    Example:
        >>> import dl4all as dl
        >>> dl.ops.log_softmax_backward(dl.tensor([1.0, 3.0]), dl.tensor([0.0, 0.0]), 0).tolist()
        [-3.0, -1.0]
    """
    if grad.ndim == 0:
        return grad - np.exp(result) * grad
    return grad - np.exp(result) * _sums(grad, dim)


log_softmax.defgrad(lambda g, result, dim: log_softmax_backward(g, result, dim))
log_softmax_backward.defgrad(
    lambda g, result, dim: g - sum(g * exp(result), dim, keepdim=True),
    lambda g, grad, result, dim: neg(g * exp(result) * sum(grad, dim, keepdim=True)),
)


def _infer_logsumexp(input: TensorBase, *, dim: Any, keepdim: bool) -> Result:
    check_float("logsumexp", input)
    return reduced_shape(input.shape, axes_of("logsumexp", dim, len(input.shape)), keepdim), input.dtype


def _run_logsumexp(out: TensorBase, input: TensorBase, *, dim: Any, keepdim: bool) -> None:
    LOGSUMEXP_REDUCTION(out, input, axes_of("logsumexp", dim, len(input.shape)))


def _logsumexp_gradient(g: Any, input: Any, result: Any, dim: Any, keepdim: bool) -> Any:
    shares = exp(sub(input, expand_reduced(result, input.shape, dim, keepdim)))
    return expand_reduced(g, input.shape, dim, keepdim) * shares


@op(
    infer=_infer_logsumexp,
    kernel=Kernel(_run_logsumexp, LOGSUMEXP_REDUCTION.shaders),
    examples=(*AXES_EXAMPLES, *EMPTY_EXAMPLES),
    grad=_logsumexp_gradient,
)
def logsumexp(input: Array, dim: Dims, keepdim: bool = False) -> Array:
    """The logarithm of the sum of the exponentials along axes, without intermediate overflow.

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
    result = np.log(accurate_sum(np.exp(input - high), axes, True, input.dtype)) + high
    return result.reshape(reduced_shape(input.shape, axes, keepdim))


def _fold_logsumexp(input: TensorBase, *, dim: Any, keepdim: bool) -> Any:
    found = repetition(input, named_axes(input, dim=dim))
    return None if found is None else add(logsumexp(found.elements, dim, keepdim), math.log(found.times))


logsumexp.define_fold(_fold_logsumexp)
