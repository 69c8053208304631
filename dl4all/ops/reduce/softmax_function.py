"""Softmax and its logarithm, with their gradients."""

from __future__ import annotations

from typing import Any

import numpy as np

from dl4all.errors import ArgumentError, ShapeError
from dl4all.ops.core.checks import check_float
from dl4all.ops.core.exports import export
from dl4all.ops.core.op import REGISTRY, Kernel, Result, example, op
from dl4all.ops.core.tensor_base import Array, TensorBase
from dl4all.ops.elementwise.arithmetic import mul, neg
from dl4all.ops.reduce.row_kernels import row_shaders, run_rows
from dl4all.ops.reduce.sums import sum

SOFTMAX, LOG_SOFTMAX = (row_shaders("reduce/softmax.comp", LOG=log) for log in (0, 1))
SOFTMAX_BACKWARD, LOG_SOFTMAX_BACKWARD = (
    row_shaders("reduce/softmax_backward.comp", LOG=log) for log in (0, 1)
)
SHAPES: tuple[tuple[tuple[int, ...], int], ...] = (
    ((3, 1000), -1), ((5, 12), 1), ((2, 5, 7), 1), ((2, 67, 131), 1), ((3001, 5), 1),
    ((13,), 0), ((4, 1), 1), ((), 0), ((0, 5), 1), ((5, 0), 1),
)  # fmt: skip


def _check(name: str, *operands: TensorBase, dim: Any) -> Result:
    check_float(name, *operands)
    shape = operands[0].shape
    rank = max(len(shape), 1)
    if not (isinstance(dim, int) and -rank <= dim < rank):
        raise ArgumentError(f"[{name}] dim {dim!r} is not an axis of shape {shape}")
    for operand in operands:
        if operand.shape != shape:
            raise ShapeError(f"[{name}] expected operands of one shape, got {shape} and {operand.shape}")
    return shape, operands[0].dtype


def _along(x: Any, f: Any) -> Any:
    """What `f` makes of an array with at least one axis."""
    return f(x.reshape(x.shape or (1,))).reshape(x.shape) if x.size else np.empty_like(x)


def _softmax_backward_of_result(g: Any, grad: Any, result: Any, dim: int) -> Any:
    of_grad, of_g = (sum(mul(v, result), dim, keepdim=True) for v in (grad, g))
    return g * (grad - of_grad) - grad * of_g


@export()
@op(
    infer=lambda grad, result, dim: _check("softmax_backward", grad, result, dim=dim),
    kernel=Kernel(
        lambda out, grad, result, dim: run_rows(SOFTMAX_BACKWARD, out, dim, grad, result),
        tuple(SOFTMAX_BACKWARD.values()),
    ),
    examples=[example(shape, shape, dim=dim) for shape, dim in SHAPES],
    grad=(
        lambda g, result, dim: REGISTRY["softmax_backward"](g, result, dim),
        _softmax_backward_of_result,
    ),
)
def softmax_backward(grad: Array, result: Array, dim: int) -> Array:
    """The gradient of :func:`softmax`, from that of its result: ``result * (grad - sum(grad * result))``.

    Args:
        grad, result: floats of one shape.
        dim: the axis of the softmax.

    Returns:
        That shape.

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
    return result * (grad - (grad * result).sum(dim, keepdims=True))


@export("dl", "Tensor", "F")
@op(
    infer=lambda input, dim: _check("softmax", input, dim=dim),
    kernel=Kernel(lambda out, input, dim: run_rows(SOFTMAX, out, dim, input), tuple(SOFTMAX.values())),
    examples=[example(shape, dim=dim) for shape, dim in SHAPES],
    grad=lambda g, result, dim: softmax_backward(g, result, dim),
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
        return exponentials / exponentials.sum(dim, keepdims=True)

    return _along(input, body)


def _log_softmax_backward_of_grad(g: Any, result: Any, dim: int) -> Any:
    return g - sum(g * REGISTRY["exp"](result), dim, keepdim=True)


def _log_softmax_backward_of_result(g: Any, grad: Any, result: Any, dim: int) -> Any:
    return neg(g * REGISTRY["exp"](result) * sum(grad, dim, keepdim=True))


@export()
@op(
    infer=lambda grad, result, dim: _check("log_softmax_backward", grad, result, dim=dim),
    kernel=Kernel(
        lambda out, grad, result, dim: run_rows(LOG_SOFTMAX_BACKWARD, out, dim, grad, result),
        tuple(LOG_SOFTMAX_BACKWARD.values()),
    ),
    examples=[example(shape, shape, dim=dim) for shape, dim in SHAPES],
    grad=(_log_softmax_backward_of_grad, _log_softmax_backward_of_result),
)
def log_softmax_backward(grad: Array, result: Array, dim: int) -> Array:
    """The gradient of :func:`log_softmax`, from that of its result: ``grad - exp(result) * sum(grad)``.

    Args:
        grad, result: floats of one shape.
        dim: the axis of the softmax.

    Returns:
        That shape.

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
    return grad - np.exp(result) * grad.sum(dim, keepdims=True)


@export("dl", "Tensor", "F")
@op(
    infer=lambda input, dim: _check("log_softmax", input, dim=dim),
    kernel=Kernel(
        lambda out, input, dim: run_rows(LOG_SOFTMAX, out, dim, input), tuple(LOG_SOFTMAX.values())
    ),
    examples=[example(shape, dim=dim) for shape, dim in SHAPES],
    grad=lambda g, result, dim: log_softmax_backward(g, result, dim),
)
def log_softmax(input: Array, dim: int = -1) -> Array:
    """The logarithm of :func:`softmax`, exact where that is too small for a float.

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
        lower = x - x.max(dim, keepdims=True)
        return lower - np.log(np.exp(lower).sum(dim, keepdims=True))

    return _along(input, body)


@export("F")
def softmin(input: Any, dim: int = -1) -> Any:
    """:func:`softmax` of the negated elements.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.functional.softmin(dl.tensor([0.0, 0.0]), dim=0).tolist()
        [0.5, 0.5]
    """
    return softmax(neg(input), dim)
