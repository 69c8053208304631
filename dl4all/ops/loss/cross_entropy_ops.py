"""Ops of cross entropy and negative log-likelihood, row by row, and their gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dl4all.errors import ShapeError
from dl4all.ops.core.checks import check_float
from dl4all.ops.core.dtypes import FLOAT32
from dl4all.ops.core.exports import export
from dl4all.ops.core.kernels.launch import run, shader, strided_grid
from dl4all.ops.core.kernels.push_block import PushBlock
from dl4all.ops.core.op import Kernel, Result, empty, example, op
from dl4all.ops.core.tensor_base import Array, TensorBase, from_host
from dl4all.ops.indexing.indices import Indices
from dl4all.ops.memory.copy import CONCAT, CONCAT_PUSH
from dl4all.ops.memory.views import contiguous, reshape
from dl4all.ops.reduce.row_kernels import ROW_PUSH, row_launch, row_shaders
from dl4all.ops.reduce.softmax_function import softmax
from dl4all.ops.reduce.sums import sum_to

WORKGROUP = 64

CROSS_ENTROPY_PUSH = PushBlock(
    "loss/cross_entropy.comp", f"{ROW_PUSH} float smoothing; uint x_offset, weight_offset;"
)
CROSS_ENTROPY_BACKWARD_PUSH = PushBlock(
    "loss/cross_entropy_backward.comp", f"{ROW_PUSH} float smoothing; uint g_offset, x_offset;"
)
NLL_PUSH = PushBlock("loss/nll.comp", "uint rows, classes, inner, x_offset, weight_offset;")
NLL_BACKWARD_PUSH = PushBlock("loss/nll_backward.comp", "uint n, classes, inner, g_offset, weight_offset;")
FORWARD, BACKWARD = (
    {weight: row_shaders(path, WEIGHT=int(weight)) for weight in (False, True)}
    for path in ("loss/cross_entropy.comp", "loss/cross_entropy_backward.comp")
)
NLL = {weight: shader("loss/nll.comp", WEIGHT=int(weight)) for weight in (False, True)}
NLL_BACKWARD = {weight: shader("loss/nll_backward.comp", WEIGHT=int(weight)) for weight in (False, True)}


def _check_operands(name: str, input: TensorBase, weight: TensorBase | None, target: Any) -> None:
    """Raise unless the target has a class for each row, and the weight one element for each class.

    Raises:
        ShapeError
    """
    if len(input.shape) != 3:
        raise ShapeError(f"[{name}] expected an input of shape (N, C, inner), got {input.shape}")
    rows, classes = input.shape[0] * input.shape[2], input.shape[1]
    row_classes = Indices.of(target)
    if len(row_classes) != rows:
        raise ShapeError(f"[{name}] expected {rows} targets for shape {input.shape}, got {len(row_classes)}")
    row_classes.check_below(
        classes,
        lambda target: ShapeError(f"[{name}] target {target} is out of range for {classes} classes"),
    )
    if weight is not None and weight.shape != (classes,):
        raise ShapeError(f"[{name}] weight must have shape ({classes},), got {weight.shape}")


def _target_distribution(input: Any, weight: Any, target: Any, label_smoothing: float) -> tuple[Any, Any]:
    """NumPy: the weight of each class in each row's loss, and which rows count, of shape (N, 1, inner)."""
    count, classes, inner = input.shape
    row_classes = Indices.of(target).array.reshape(count, 1, inner)
    weights = np.ones(classes, input.dtype) if weight is None else weight
    is_target = (row_classes == np.arange(classes).reshape(1, classes, 1)) * (1 - label_smoothing)
    expected = (is_target + label_smoothing / max(classes, 1)) * weights.reshape(1, classes, 1)
    return np.asarray(expected, input.dtype), row_classes >= 0


def _infer_cross_entropy(
    input: TensorBase, weight: TensorBase | None, *, target: Any, label_smoothing: float
) -> Result:
    check_float("cross_entropy_each", input, weight)
    _check_operands("cross_entropy_each", input, weight, target)
    return (input.shape[0], input.shape[2]), input.dtype


def _run_cross_entropy(
    out: TensorBase, input: TensorBase, weight: TensorBase | None, *, target: Any, label_smoothing: float
) -> None:
    x, w = contiguous(input), None if weight is None else contiguous(weight)
    _, classes, inner = x.shape
    weights = () if w is None else (w,)
    rows = row_launch(FORWARD[w is not None], out.numel(), classes, inner, x, *weights)
    offsets = (x.offset // rows.width, 0 if w is None else w.offset // rows.width)
    push = CROSS_ENTROPY_PUSH.after(rows.push, float(label_smoothing), *offsets)
    run(rows.code, rows.groups, push, x, Indices.of(target).on(x), *weights, out)


def _cross_entropy_gradient(g: Any, input: Any, weight: Any, target: Any, label_smoothing: float) -> Any:
    return cross_entropy_backward(g, input, weight, target=target, label_smoothing=label_smoothing)


@export()
@op(
    infer=_infer_cross_entropy,
    kernel=Kernel(_run_cross_entropy, tuple(code for rows in FORWARD.values() for code in rows.values())),
    examples=(
        example((3, 5, 2), (5,), target=(0, 4, -1, 2, 2, 1)),
        example((2, 7, 1), None, target=(6, 0)),
        example((2, 7, 3), (7,), target=(0, 1, 2, 3, 4, 5), label_smoothing=0.1),
        example((2, 5, 1), None, target=(-1, 3), label_smoothing=0.3),
        example((2, 1, 1), None, target=(0, 0)),
        example((3, 1009, 1), None, target=(1008, 0, 500)),
        example((3, 131, 1), (131,), target=(130, 0, -1), label_smoothing=0.1),
        example((5, 12, 1), (12,), target=(0, 1, 6, -1, 11), label_smoothing=0.1),
        example((3, 132, 1), None, target=(131, 0, 50)),
        example((0, 5, 3), (5,), target=()),
    ),
    grad=(_cross_entropy_gradient, None),
)
def cross_entropy_each(
    input: Array,
    weight: Array | None = None,
    target: Sequence[int] | Indices = (),
    label_smoothing: float = 0.0,
) -> Array:
    """The negative logarithm of the softmax at the target class, for each row of scores.

    Args:
        input: floats of shape (N, C, inner).
        weight: shape (C,), one for each class.
        target: N * inner ints below C; the loss of a negative one is 0.
        label_smoothing: the share of the target that is spread evenly over all classes.

    Returns:
        Shape (N, inner).

    Raises:
        ShapeError, DTypeError

    Example:
        >>> import dl4all as dl
        >>> dl.ops.cross_entropy_each(dl.zeros(1, 1, 2), target=(0, -1)).tolist()
        [[0.0, 0.0]]
    """
    if input.shape[1] == 0 or input.size == 0:
        return np.zeros((input.shape[0], input.shape[2]), input.dtype)
    largest = input.max(1, keepdims=True)
    shifted = input - largest
    log_sum = np.log(np.exp(shifted).sum(1, keepdims=True))
    expected, counts = _target_distribution(input, weight, target, label_smoothing)
    with np.errstate(invalid="ignore"):
        terms = np.where(expected == 0, 0, (log_sum - shifted) * expected)  # 0 * inf is nan
    result = np.where(np.isfinite(largest), terms.sum(1, keepdims=True), np.nan)
    return np.where(counts, result, 0)[:, 0]


def _infer_cross_entropy_backward(
    grad: TensorBase, input: TensorBase, weight: TensorBase | None, *, target: Any, label_smoothing: float
) -> Result:
    check_float("cross_entropy_backward", grad, input, weight)
    _check_operands("cross_entropy_backward", input, weight, target)
    return input.shape, input.dtype


def _run_cross_entropy_backward(
    out: TensorBase,
    grad: TensorBase,
    input: TensorBase,
    weight: TensorBase | None,
    *,
    target: Any,
    label_smoothing: float,
) -> None:
    g, x = contiguous(grad), contiguous(input)
    _, classes, inner = x.shape
    rows = g.numel()
    if weight is not None:
        w = contiguous(weight)
        g_and_weight = empty(type(out), (rows + classes,), FLOAT32, out.device)
        push = CONCAT_PUSH.pack(n=rows + classes, first=rows, a_offset=g.offset, b_offset=w.offset)
        run(CONCAT, strided_grid(rows + classes, WORKGROUP), push, g, w, g_and_weight)
        g = g_and_weight
    rows_launch = row_launch(BACKWARD[weight is not None], rows, classes, inner, x)
    push = CROSS_ENTROPY_BACKWARD_PUSH.after(
        rows_launch.push,
        smoothing=float(label_smoothing),
        g_offset=g.offset,
        x_offset=x.offset // rows_launch.width,
    )
    run(rows_launch.code, rows_launch.groups, push, g, x, Indices.of(target).on(x), out)


def _constant(like: Any, array: Any) -> Any:
    """The array as a tensor of the dtype and device of `like`."""
    return from_host(type(like).result_class, np.asarray(array, like.dtype), like.device, copy=False)


def _backward_gradient_by_grad(
    v: Any, grad: Any, input: Any, weight: Any, target: Any, label_smoothing: float
) -> Any:
    """The result is linear in `grad`: the gradient of each row's loss, times the row's element."""
    ones = _constant(input, np.ones(grad.shape))
    gradients = cross_entropy_backward(ones, input, weight, target=target, label_smoothing=label_smoothing)
    count, _, inner = input.shape
    return reshape(sum_to(v * gradients, (count, 1, inner)), count, inner)


def _backward_gradient_by_input(
    v: Any, grad: Any, input: Any, weight: Any, target: Any, label_smoothing: float
) -> Any:
    """Only the softmax depends on the input; its factor in a row is the sum of the expected weights."""
    count, _, inner = input.shape
    host = np.empty(input.shape, input.dtype)
    expected, counts = _target_distribution(
        host, None if weight is None else weight.on_host(), target, label_smoothing
    )
    factor = _constant(input, np.where(counts, expected.sum(1, keepdims=True), 0))
    probabilities = softmax(input, dim=1)
    scaled = v * (reshape(grad, count, 1, inner) * factor)
    return probabilities * (scaled - sum_to(scaled * probabilities, (count, 1, inner)))


@export()
@op(
    infer=_infer_cross_entropy_backward,
    kernel=Kernel(
        _run_cross_entropy_backward, (*(code for rows in BACKWARD.values() for code in rows.values()), CONCAT)
    ),
    examples=(
        example((3, 2), (3, 5, 2), (5,), target=(0, 4, -1, 2, 2, 1)),
        example((2, 1), (2, 7, 1), None, target=(6, 0)),
        example((2, 3), (2, 7, 3), (7,), target=(0, 1, 2, 3, 4, 5), label_smoothing=0.1),
        example((2, 1), (2, 5, 1), None, target=(-1, 3), label_smoothing=0.3),
        example((3, 1), (3, 1009, 1), None, target=(1008, 0, 500)),
        example((3, 1), (3, 131, 1), (131,), target=(130, 0, -1), label_smoothing=0.1),
        example((5, 1), (5, 12, 1), (12,), target=(0, 1, 6, -1, 11), label_smoothing=0.1),
        example((3, 1), (3, 132, 1), None, target=(131, 0, 50)),
        example((0, 3), (0, 5, 3), (5,), target=()),
    ),
    grad=(_backward_gradient_by_grad, _backward_gradient_by_input, None),
)
def cross_entropy_backward(
    grad: Array,
    input: Array,
    weight: Array | None = None,
    target: Sequence[int] | Indices = (),
    label_smoothing: float = 0.0,
) -> Array:
    """The gradient of :func:`cross_entropy_each` with respect to its input.

    Args:
        grad: the result's gradient, of shape (N, inner).
        input, weight, target, label_smoothing: the arguments of :func:`cross_entropy_each`.

    Returns:
        Shape (N, C, inner).

    Raises:
        ShapeError, DTypeError

    Example:
        >>> import dl4all as dl
        >>> dl.ops.cross_entropy_backward(dl.ones(1, 1), dl.zeros(1, 2, 1), target=(0,)).tolist()
        [[[-0.5], [0.5]]]
    """
    if input.size == 0:
        return np.zeros_like(input)
    exponentials = np.exp(input - input.max(1, keepdims=True))
    expected, counts = _target_distribution(input, weight, target, label_smoothing)
    share = expected.sum(1, keepdims=True) / exponentials.sum(1, keepdims=True)
    gradients = exponentials * share - expected
    return np.where(counts, gradients * grad[:, None], 0)


# Negative log likelihood


def _infer_nll(input: TensorBase, weight: TensorBase | None, *, target: Any) -> Result:
    check_float("nll_each", input, weight)
    _check_operands("nll_each", input, weight, target)
    return (input.shape[0], input.shape[2]), input.dtype


def _run_nll(out: TensorBase, input: TensorBase, weight: TensorBase | None, *, target: Any) -> None:
    x, w = contiguous(input), None if weight is None else contiguous(weight)
    push = NLL_PUSH.pack(
        rows=out.numel(),
        classes=x.shape[1],
        inner=x.shape[2],
        x_offset=x.offset,
        weight_offset=0 if w is None else w.offset,
    )
    operands = (x, Indices.of(target).on(x), *(() if w is None else (w,)))
    run(NLL[w is not None], strided_grid(out.numel(), WORKGROUP), push, *operands, out)


def _nll_gradient(g: Any, weight: Any, target: Any, shapes: Any) -> Any:
    return nll_backward(g, weight, target=target, classes=shapes[0][1])


@export()
@op(
    infer=_infer_nll,
    kernel=Kernel(_run_nll, tuple(NLL.values())),
    examples=(
        example((3, 5, 2), (5,), target=(0, 4, -1, 2, 2, 1)),
        example((2, 7, 1), None, target=(6, 0)),
        example((0, 5, 3), (5,), target=()),
    ),
    grad=(_nll_gradient, None),
)
def nll_each(input: Array, weight: Array | None = None, target: Sequence[int] | Indices = ()) -> Array:
    """The negative log-probability of the target class, for each row of log-probabilities.

    Args:
        input: floats of shape (N, C, inner).
        weight: shape (C,), one for each class.
        target: N * inner ints below C; the loss of a negative one is 0.

    Returns:
        Shape (N, inner).

    Raises:
        ShapeError, DTypeError

    Example:
        >>> import dl4all as dl
        >>> dl.ops.nll_each(dl.tensor([[[-1.0, -2.0]]]), target=(0, -1)).tolist()
        [[1.0, 0.0]]
    """
    count, classes, inner = input.shape
    row_classes = Indices.of(target).array.reshape(count, 1, inner)
    if row_classes.size == 0 or not classes:
        return np.zeros((count, inner), input.dtype)
    selected = np.take_along_axis(input, np.maximum(row_classes, 0), 1)
    if weight is not None:
        selected = selected * weight[np.maximum(row_classes, 0)]
    return np.where(row_classes < 0, 0, -selected)[:, 0]


def _infer_nll_backward(grad: TensorBase, weight: TensorBase | None, *, target: Any, classes: int) -> Result:
    check_float("nll_backward", grad, weight)
    if len(grad.shape) != 2 or grad.numel() != len(Indices.of(target)):
        raise ShapeError(f"[nll_backward] expected shape (N, inner) and as many targets, got {grad.shape}")
    return (grad.shape[0], classes, grad.shape[1]), grad.dtype


def _run_nll_backward(
    out: TensorBase, grad: TensorBase, weight: TensorBase | None, *, target: Any, classes: int
) -> None:
    g, w = contiguous(grad), None if weight is None else contiguous(weight)
    push = NLL_BACKWARD_PUSH.pack(
        n=out.numel(),
        classes=classes,
        inner=out.shape[2],
        g_offset=g.offset,
        weight_offset=0 if w is None else w.offset,
    )
    operands = (g, Indices.of(target).on(g), *(() if w is None else (w,)))
    run(NLL_BACKWARD[w is not None], strided_grid(out.numel(), WORKGROUP), push, *operands, out)


@export()
@op(
    infer=_infer_nll_backward,
    kernel=Kernel(_run_nll_backward, tuple(NLL_BACKWARD.values())),
    examples=(
        example((3, 2), (5,), target=(0, 4, -1, 2, 2, 1), classes=5),
        example((2, 1), None, target=(6, 0), classes=7),
        example((0, 3), (5,), target=(), classes=5),
    ),
    grad=(lambda g, weight, target: nll_each(g, weight, target=target), None),
)
def nll_backward(
    grad: Array, weight: Array | None = None, target: Sequence[int] | Indices = (), classes: int = 1
) -> Array:
    """The gradient of :func:`nll_each` with respect to its input.

    Args:
        grad: the result's gradient, of shape (N, inner).
        weight, target: the arguments of :func:`nll_each`.
        classes: the number of classes C.

    Returns:
        Shape (N, C, inner).

    Raises:
        ShapeError, DTypeError

    Example:
        >>> import dl4all as dl
        >>> dl.ops.nll_backward(dl.ones(1, 1), target=(0,), classes=2).tolist()
        [[[-1.0], [0.0]]]
    """
    row_classes = Indices.of(target).array.reshape(grad.shape[0], 1, grad.shape[1])
    scaled = grad[:, None] if weight is None else grad[:, None] * weight[np.maximum(row_classes, 0)]
    return np.where(row_classes == np.arange(classes).reshape(1, -1, 1), -scaled, 0)
