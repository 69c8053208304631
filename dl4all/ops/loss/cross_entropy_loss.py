"""The ops of losses by class: how badly each row of scores meets the class it should have."""

from __future__ import annotations

from typing import Any

import numpy as np

from dl4all.errors import ShapeError
from dl4all.ops.core.checks import check_float
from dl4all.ops.core.exports import export
from dl4all.ops.core.launch import pack, run, shader, strided_grid
from dl4all.ops.core.op import Kernel, Result, empty, example, op
from dl4all.ops.core.tensor_base import Array, TensorBase, from_host
from dl4all.ops.indexing.indices import Indices
from dl4all.ops.memory.copy import CONCAT
from dl4all.ops.memory.views import contiguous, reshape
from dl4all.ops.reduce.row_kernels import row_launch, row_shaders
from dl4all.ops.reduce.softmax_function import softmax
from dl4all.ops.reduce.sums import sum_to

WORKGROUP = 64

FORWARD, BACKWARD = (
    {weight: row_shaders(path, WEIGHT=int(weight)) for weight in (False, True)}
    for path in ("loss/cross_entropy.comp", "loss/cross_entropy_backward.comp")
)
NLL = {weight: shader("loss/nll.comp", WEIGHT=int(weight)) for weight in (False, True)}
NLL_BACKWARD = {weight: shader("loss/nll_backward.comp", WEIGHT=int(weight)) for weight in (False, True)}


def _check(name: str, input: TensorBase, weight: TensorBase | None, target: Any) -> None:
    if len(input.shape) != 3:
        raise ShapeError(f"[{name}] expected an input of shape (N, C, inner), got {input.shape}")
    rows, classes = input.shape[0] * input.shape[2], input.shape[1]
    places = Indices.of(target)
    if len(places) != rows:
        raise ShapeError(f"[{name}] expected {rows} targets for shape {input.shape}, got {len(places)}")
    if rows and places.array.max() >= classes:
        raise ShapeError(f"[{name}] target {places.array.max()} is out of range for {classes} classes")
    if weight is not None and weight.shape != (classes,):
        raise ShapeError(f"[{name}] weight must have shape ({classes},), got {weight.shape}")


def _asked(input: Any, weight: Any, target: Any, label_smoothing: float) -> tuple[Any, Any]:
    """NumPy's weight of each class in each row's loss, and which rows count, of shape (N, 1, inner)."""
    count, classes, inner = input.shape
    places = Indices.of(target).array.reshape(count, 1, inner)
    weights = np.ones(classes, input.dtype) if weight is None else weight
    own = (places == np.arange(classes).reshape(1, classes, 1)) * (1 - label_smoothing)
    asked = (own + label_smoothing / max(classes, 1)) * weights.reshape(1, classes, 1)
    return np.asarray(asked, input.dtype), places >= 0


def _cross_entropy_shape(
    input: TensorBase, weight: TensorBase | None, *, target: Any, label_smoothing: float
) -> Result:
    check_float("cross_entropy_each", input, weight)
    _check("cross_entropy_each", input, weight, target)
    return (input.shape[0], input.shape[2]), input.dtype


def _cross_entropy_run(
    out: TensorBase, input: TensorBase, weight: TensorBase | None, *, target: Any, label_smoothing: float
) -> None:
    x, w = contiguous(input), None if weight is None else contiguous(weight)
    along, weights = (x.shape[1], x.shape[2]), () if w is None else (w,)
    rows = row_launch(FORWARD[w is not None], out.numel(), *along, x, *weights)
    offsets = (x.offset // rows.width, 0 if w is None else w.offset // rows.width)
    push = rows.push + pack(float(label_smoothing), *offsets)
    run(rows.code, rows.groups, push, x, Indices.of(target).on(x), *weights, out)


def _cross_entropy_grad(g: Any, input: Any, weight: Any, target: Any, label_smoothing: float) -> Any:
    return cross_entropy_backward(g, input, weight, target=target, label_smoothing=label_smoothing)


@export()
@op(
    infer=_cross_entropy_shape,
    kernel=Kernel(_cross_entropy_run, tuple(code for rows in FORWARD.values() for code in rows.values())),
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
    grad=(_cross_entropy_grad, None),
)
def cross_entropy_each(
    input: Array, weight: Array | None = None, target: Any = (), label_smoothing: float = 0.0
) -> Array:
    """For each row of scores the negative logarithm of the softmax at its class.

    Args:
        input: floats of shape (N, C, inner).
        weight: shape (C,), of the classes.
        target: N * inner ints below C; a negative one gives 0.
        label_smoothing: the share of the mean over all classes.

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
    high = input.max(1, keepdims=True)
    away = input - high
    level = np.log(np.exp(away).sum(1, keepdims=True))
    asked, counts = _asked(input, weight, target, label_smoothing)
    with np.errstate(invalid="ignore"):
        terms = np.where(asked == 0, 0, (level - away) * asked)  # 0 * inf is nan
    result = np.where(np.isfinite(high), terms.sum(1, keepdims=True), np.nan)
    return np.where(counts, result, 0)[:, 0]


def _cross_entropy_backward_shape(
    grad: TensorBase, input: TensorBase, weight: TensorBase | None, *, target: Any, label_smoothing: float
) -> Result:
    check_float("cross_entropy_backward", grad, input, weight)
    _check("cross_entropy_backward", input, weight, target)
    return input.shape, input.dtype


def _cross_entropy_backward_run(
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
        joined = empty(type(out), (rows + classes,), out.dtype, out.device)
        push = pack(rows + classes, rows, g.offset, w.offset)
        run(CONCAT, strided_grid(rows + classes, WORKGROUP), push, g, w, joined)
        g = joined
    chosen = row_launch(BACKWARD[weight is not None], rows, classes, inner, x)
    push = chosen.push + pack(float(label_smoothing), g.offset, x.offset // chosen.width)
    run(chosen.code, chosen.groups, push, g, x, Indices.of(target).on(x), out)


def _constant(like: Any, array: Any) -> Any:
    return from_host(type(like).result_class, np.asarray(array, like.dtype), like.device, copy=False)


def _backward_of_grad(v: Any, grad: Any, input: Any, weight: Any, target: Any, label_smoothing: float) -> Any:
    """The result is the gradient of each row's loss times `grad`."""
    ones = _constant(input, np.ones(grad.shape))
    slopes = cross_entropy_backward(ones, input, weight, target=target, label_smoothing=label_smoothing)
    count, _, inner = input.shape
    return reshape(sum_to(v * slopes, (count, 1, inner)), count, inner)


def _backward_of_input(
    v: Any, grad: Any, input: Any, weight: Any, target: Any, label_smoothing: float
) -> Any:
    """Only the softmax depends on the input: its share in a row's loss is all that is asked for there."""
    count, _, inner = input.shape
    host = np.empty(input.shape, input.dtype)
    asked, counts = _asked(host, None if weight is None else weight.on_host(), target, label_smoothing)
    factor = _constant(input, np.where(counts, asked.sum(1, keepdims=True), 0))
    probabilities = softmax(input, dim=1)
    scaled = v * (reshape(grad, count, 1, inner) * factor)
    return probabilities * (scaled - sum_to(scaled * probabilities, (count, 1, inner)))


@export()
@op(
    infer=_cross_entropy_backward_shape,
    kernel=Kernel(
        _cross_entropy_backward_run, (*(code for rows in BACKWARD.values() for code in rows.values()), CONCAT)
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
    grad=(_backward_of_grad, _backward_of_input, None),
)
def cross_entropy_backward(
    grad: Array, input: Array, weight: Array | None = None, target: Any = (), label_smoothing: float = 0.0
) -> Array:
    """The gradient of :func:`cross_entropy_each` with respect to its input.

    Args:
        grad: the result's gradient, of shape (N, inner).
        input, weight, target, label_smoothing: as they were.

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
    asked, counts = _asked(input, weight, target, label_smoothing)
    share = asked.sum(1, keepdims=True) / exponentials.sum(1, keepdims=True)
    slopes = exponentials * share - asked
    return np.where(counts, slopes * grad[:, None], 0)


# Negative log likelihood


def _nll_shape(input: TensorBase, weight: TensorBase | None, *, target: Any) -> Result:
    check_float("nll_each", input, weight)
    _check("nll_each", input, weight, target)
    return (input.shape[0], input.shape[2]), input.dtype


def _nll_run(out: TensorBase, input: TensorBase, weight: TensorBase | None, *, target: Any) -> None:
    x, w = contiguous(input), None if weight is None else contiguous(weight)
    push = pack(out.numel(), x.shape[1], x.shape[2], x.offset, 0 if w is None else w.offset)
    operands = (x, Indices.of(target).on(x), *(() if w is None else (w,)))
    run(NLL[w is not None], strided_grid(out.numel(), WORKGROUP), push, *operands, out)


def _nll_grad(g: Any, weight: Any, target: Any, shapes: Any) -> Any:
    return nll_backward(g, weight, target=target, classes=shapes[0][1])


@export()
@op(
    infer=_nll_shape,
    kernel=Kernel(_nll_run, tuple(NLL.values())),
    examples=(
        example((3, 5, 2), (5,), target=(0, 4, -1, 2, 2, 1)),
        example((2, 7, 1), None, target=(6, 0)),
        example((0, 5, 3), (5,), target=()),
    ),
    grad=(_nll_grad, None),
)
def nll_each(input: Array, weight: Array | None = None, target: Any = ()) -> Array:
    """For each row of log-probabilities the negative one of its class.

    Args:
        input: floats of shape (N, C, inner).
        weight: shape (C,), of the classes.
        target: N * inner ints below C; a negative one gives 0.

    Returns:
        Shape (N, inner).

    Raises:
        ShapeError, DTypeError

    Example:
        >>> import dl4all as dl
        >>> dl.ops.nll_each(dl.tensor([[[-1.0, -2.0]]]), target=(0, -1)).tolist()
        [[1.0, 0.0]]
    """
    count, _, inner = input.shape
    places = Indices.of(target).array.reshape(count, 1, inner)
    if places.size == 0:
        return np.zeros((count, inner), input.dtype)
    taken = np.take_along_axis(input, np.maximum(places, 0), 1)
    if weight is not None:
        taken = taken * weight[np.maximum(places, 0)]
    return np.where(places < 0, 0, -taken)[:, 0]


def _nll_backward_shape(grad: TensorBase, weight: TensorBase | None, *, target: Any, classes: int) -> Result:
    check_float("nll_backward", grad, weight)
    if len(grad.shape) != 2 or grad.numel() != len(Indices.of(target)):
        raise ShapeError(f"[nll_backward] expected shape (N, inner) and as many targets, got {grad.shape}")
    return (grad.shape[0], classes, grad.shape[1]), grad.dtype


def _nll_backward_run(
    out: TensorBase, grad: TensorBase, weight: TensorBase | None, *, target: Any, classes: int
) -> None:
    g, w = contiguous(grad), None if weight is None else contiguous(weight)
    push = pack(out.numel(), classes, out.shape[2], g.offset, 0 if w is None else w.offset)
    operands = (g, Indices.of(target).on(g), *(() if w is None else (w,)))
    run(NLL_BACKWARD[w is not None], strided_grid(out.numel(), WORKGROUP), push, *operands, out)


@export()
@op(
    infer=_nll_backward_shape,
    kernel=Kernel(_nll_backward_run, tuple(NLL_BACKWARD.values())),
    examples=(
        example((3, 2), (5,), target=(0, 4, -1, 2, 2, 1), classes=5),
        example((2, 1), None, target=(6, 0), classes=7),
        example((0, 3), (5,), target=(), classes=5),
    ),
    grad=(lambda g, weight, target: nll_each(g, weight, target=target), None),
)
def nll_backward(grad: Array, weight: Array | None = None, target: Any = (), classes: int = 1) -> Array:
    """The gradient of :func:`nll_each` with respect to its input.

    Args:
        grad: the result's gradient, of shape (N, inner).
        weight, target: as they were.
        classes: C.

    Returns:
        Shape (N, C, inner).

    Raises:
        ShapeError, DTypeError

    Example:
        >>> import dl4all as dl
        >>> dl.ops.nll_backward(dl.ones(1, 1), target=(0,), classes=2).tolist()
        [[[-1.0], [0.0]]]
    """
    places = Indices.of(target).array.reshape(grad.shape[0], 1, grad.shape[1])
    scaled = grad[:, None] if weight is None else grad[:, None] * weight[np.maximum(places, 0)]
    return np.where(places == np.arange(classes).reshape(1, -1, 1), -scaled, 0)
