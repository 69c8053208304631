"""One step of recurrent networks: all that is done to each element, in one kernel, and its gradient."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

from dl4all.errors import ShapeError
from dl4all.ops.activation.smooth import sigmoid
from dl4all.ops.core import tape
from dl4all.ops.core.branchless import logistic
from dl4all.ops.core.checks import check_float
from dl4all.ops.core.exports import export
from dl4all.ops.core.launch import pack, run, shader, strided_grid
from dl4all.ops.core.op import Kernel, Result, empty, example, op
from dl4all.ops.core.tensor_base import Array, Shape, TensorBase
from dl4all.ops.elementwise.transcendental import tanh
from dl4all.ops.indexing.concatenation import cat
from dl4all.ops.memory.copy import CONCAT, fill_with, new_like
from dl4all.ops.memory.views import contiguous, narrow, reshape

T = TypeVar("T", bound=TensorBase)

WORKGROUP = 128
LSTM, LSTM_BACKWARD = shader("rnn/lstm.comp"), shader("rnn/lstm_backward.comp")
GRU, GRU_BACKWARD = shader("rnn/gru.comp"), shader("rnn/gru_backward.comp")


def _check(name: str, count: int, state: TensorBase, **shares: TensorBase) -> tuple[int, int]:
    """Rows and size of the hidden state."""
    check_float(name, state, *shares.values())
    if len(state.shape) != 2:
        raise ShapeError(f"[{name}] expected a state of shape (N, size), got {state.shape}")
    rows, size = state.shape
    for word, share in shares.items():
        if share.shape != (rows, count * size):
            raise ShapeError(
                f"[{name}] {word} must have shape ({rows}, {count * size}) for a state of shape "
                f"{state.shape}, got {share.shape}"
            )
    return rows, size


def _part(flat: Any, start: int, rows: int, columns: int) -> Any:
    """A matrix among those that lie one behind the other in one axis."""
    return reshape(narrow(flat, 0, start, rows * columns), rows, columns)


def _columns(matrix: Any, count: int) -> list[Any]:
    """A matrix in so many equal parts, side by side."""
    size = matrix.shape[1] // count
    return [narrow(matrix, 1, k * size, size) for k in range(count)]


# LSTM


def _lstm_shape(gates_x: TensorBase, gates_h: TensorBase, cell: TensorBase) -> Result:
    return (2, *_check("lstm_step", 4, cell, gates_x=gates_x, gates_h=gates_h)), cell.dtype


def _lstm_run(out: TensorBase, gates_x: TensorBase, gates_h: TensorBase, cell: TensorBase) -> None:
    operands = [contiguous(t) for t in (gates_x, gates_h, cell)]
    push = pack(cell.numel(), cell.shape[1], *(t.offset for t in operands))
    run(LSTM, strided_grid(cell.numel(), WORKGROUP), push, *operands, out)


def _lstm_parts(flat: Any, shape: Shape) -> tuple[Any, Any]:
    """The gradients of gates and cell."""
    rows, size = shape
    return _part(flat, 0, rows, 4 * size), _part(flat, 4 * rows * size, rows, size)


def _lstm_grad(g: Any, gates_x: Any, gates_h: Any, cell: Any) -> tuple[Any, ...]:
    of_gates, of_cell = _lstm_parts(lstm_step_backward(g, gates_x + gates_h, cell), cell.shape)
    return of_gates, of_gates, of_cell


@export()
@op(
    infer=_lstm_shape,
    kernel=Kernel(_lstm_run, (LSTM,)),
    examples=(
        example((2, 12), (2, 12), (2, 3)),
        example((13, 28), (13, 28), (13, 7)),
        example((1, 4), (1, 4), (1, 1)),
        example((67, 20), (67, 20), (67, 5)),
        example((0, 20), (0, 20), (0, 5)),
    ),
    grad=_lstm_grad,
)
def lstm_step(gates_x: Array, gates_h: Array, cell: Array) -> Array:
    """The new hidden state and cell of a LSTM (Hochreiter and Schmidhuber, 1997).

    With the four columns of ``gates_x + gates_h``, input, forget, new and output in PyTorch's order:
    ``cell = sigmoid(forget) * cell + sigmoid(input) * tanh(new)``, ``hidden = sigmoid(output) * tanh(cell)``.

    Args:
        gates_x, gates_h: the shares of input and hidden state, shape (N, 4 * size).
        cell: shape (N, size).

    Returns:
        Shape (2, N, size): the hidden state and the cell.

    Raises:
        ShapeError, DTypeError

    Example:
        >>> import dl4all as dl
        >>> dl.ops.lstm_step(dl.zeros(1, 4), dl.zeros(1, 4), dl.tensor([[4.0]]))[1].tolist()
        [[2.0]]
    """
    enter, forget, value, leave = np.split(gates_x + gates_h, 4, axis=1)
    kept = logistic(forget) * cell + logistic(enter) * np.tanh(value)
    return np.stack([logistic(leave) * np.tanh(kept), kept])


def _lstm_backward_shape(grad: TensorBase, gates: TensorBase, cell: TensorBase) -> Result:
    rows, size = _check("lstm_step_backward", 4, cell, gates=gates)
    check_float("lstm_step_backward", grad, cell)
    if grad.shape != (2, rows, size):
        raise ShapeError(f"[lstm_step_backward] grad must have shape {(2, rows, size)}, got {grad.shape}")
    return (5 * rows * size,), cell.dtype


def _lstm_backward_run(out: TensorBase, grad: TensorBase, gates: TensorBase, cell: TensorBase) -> None:
    operands = [contiguous(t) for t in (grad, gates, cell)]
    push = pack(cell.numel(), cell.shape[1], *(t.offset for t in operands))
    run(LSTM_BACKWARD, strided_grid(cell.numel(), WORKGROUP), push, *operands, out)


def _lstm_backward_grad(u: Any, grad: Any, gates: Any, cell: Any) -> tuple[Any, ...]:
    """With s for the gradient of the new cell, the result times u is ``s * k + of_hidden * m``."""
    of_gates, u_cell = _lstm_parts(u, cell.shape)
    u_in, u_forget, u_value, u_out = _columns(of_gates, 4)
    a, b, v, o = _columns(gates, 4)
    a, b, v, o = sigmoid(a), sigmoid(b), tanh(v), sigmoid(o)
    da, db, dv, do = a * (1 - a), b * (1 - b), 1 - v * v, o * (1 - o)
    q = tanh(b * cell + a * v)
    dq = 1 - q * q
    of_hidden, of_new = grad[0], grad[1]
    s = of_new + of_hidden * o * dq
    k = u_in * v * da + u_forget * cell * db + u_value * a * dv + u_cell * b
    m = u_out * q * do
    through = dq * of_hidden * (u_out * do - 2 * k * o * q)  # the gradient of the new cell
    found_gates = cat(
        [
            s * (u_in * v * da * (1 - 2 * a) + u_value * dv * da) + through * v * da,
            s * (u_forget * cell * db * (1 - 2 * b) + u_cell * db) + through * cell * db,
            s * (u_in * da * dv - 2 * u_value * a * v * dv) + through * a * dv,
            of_hidden * do * (k * dq + u_out * q * (1 - 2 * o)),
        ],
        1,
    )
    rows, size = cell.shape
    found_grad = cat([reshape(t, 1, rows, size) for t in (o * dq * k + m, k)])
    return found_grad, found_gates, s * u_forget * db + through * b


@export()
@op(
    infer=_lstm_backward_shape,
    kernel=Kernel(_lstm_backward_run, (LSTM_BACKWARD,)),
    examples=(
        example((2, 2, 3), (2, 12), (2, 3)),
        example((2, 13, 7), (13, 28), (13, 7)),
        example((2, 1, 1), (1, 4), (1, 1)),
        example((2, 67, 5), (67, 20), (67, 5)),
        example((2, 0, 5), (0, 20), (0, 5)),
    ),
    grad=_lstm_backward_grad,
)
def lstm_step_backward(grad: Array, gates: Array, cell: Array) -> Array:
    """The gradient of :func:`lstm_step`, whose two shares of the gates have the same one.

    Args:
        grad: of the hidden state and of the cell, shape (2, N, size).
        gates: the sum of the shares, shape (N, 4 * size).
        cell: shape (N, size).

    Returns:
        One axis: the gradient of the gates, and behind it that of the cell.

    Raises:
        ShapeError, DTypeError

    Example:
        >>> import dl4all as dl
        >>> g = dl.tensor([[[0.0]], [[4.0]]])
        >>> dl.ops.lstm_step_backward(g, dl.zeros(1, 4), dl.tensor([[1.0]])).tolist()
        [0.0, 1.0, 2.0, 0.0, 2.0]
    """
    a, b, v, o = np.split(gates, 4, axis=1)
    a, b, v, o = logistic(a), logistic(b), np.tanh(v), logistic(o)
    q = np.tanh(b * cell + a * v)
    s = grad[1] + grad[0] * o * (1 - q * q)
    of_gates = [
        s * v * (a * (1 - a)), s * cell * (b * (1 - b)), s * a * (1 - v * v), grad[0] * q * (o * (1 - o)),
    ]  # fmt: skip
    return np.concatenate([np.concatenate(of_gates, axis=1).reshape(-1), (s * b).reshape(-1)])


# GRU


def _gru_shape(gates_x: TensorBase, gates_h: TensorBase, hidden: TensorBase) -> Result:
    _check("gru_step", 3, hidden, gates_x=gates_x, gates_h=gates_h)
    return hidden.shape, hidden.dtype


def _gru_run(out: TensorBase, gates_x: TensorBase, gates_h: TensorBase, hidden: TensorBase) -> None:
    operands = [contiguous(t) for t in (gates_x, gates_h, hidden)]
    push = pack(hidden.numel(), hidden.shape[1], *(t.offset for t in operands))
    run(GRU, strided_grid(hidden.numel(), WORKGROUP), push, *operands, out)


def _gru_parts(flat: Any, shape: Shape) -> tuple[Any, Any, Any]:
    """The gradients of the two shares of the gates and of the hidden state."""
    rows, size = shape
    n = rows * size
    return (
        _part(flat, 0, rows, 3 * size),
        _part(flat, 3 * n, rows, 3 * size),
        _part(flat, 6 * n, rows, size),
    )


def _gru_grad(g: Any, gates_x: Any, gates_h: Any, hidden: Any) -> tuple[Any, ...]:
    return _gru_parts(gru_step_backward(g, gates_x, gates_h, hidden), hidden.shape)


@export()
@op(
    infer=_gru_shape,
    kernel=Kernel(_gru_run, (GRU,)),
    examples=(
        example((2, 9), (2, 9), (2, 3)),
        example((13, 21), (13, 21), (13, 7)),
        example((1, 3), (1, 3), (1, 1)),
        example((67, 15), (67, 15), (67, 5)),
        example((0, 15), (0, 15), (0, 5)),
    ),
    grad=_gru_grad,
)
def gru_step(gates_x: Array, gates_h: Array, hidden: Array) -> Array:
    """The new hidden state of a GRU (Cho et al., arXiv:1406.1078).

    With the three columns of each share, reset, update and new in PyTorch's order:
    ``reset = sigmoid(x_reset + h_reset)``, ``update = sigmoid(x_update + h_update)``,
    ``new = tanh(x_new + reset * h_new)``, ``hidden = (1 - update) * new + update * hidden``.

    Args:
        gates_x, gates_h: the shares of input and hidden state, shape (N, 3 * size).
        hidden: shape (N, size).

    Returns:
        Shape (N, size).

    Raises:
        ShapeError, DTypeError

    Example:
        >>> import dl4all as dl
        >>> dl.ops.gru_step(dl.zeros(1, 3), dl.zeros(1, 3), dl.tensor([[4.0]])).tolist()
        [[2.0]]
    """
    x_reset, x_update, x_new = np.split(gates_x, 3, axis=1)
    h_reset, h_update, h_new = np.split(gates_h, 3, axis=1)
    update = logistic(x_update + h_update)
    new = np.tanh(x_new + logistic(x_reset + h_reset) * h_new)
    return (1 - update) * new + update * hidden


def _gru_backward_shape(
    grad: TensorBase, gates_x: TensorBase, gates_h: TensorBase, hidden: TensorBase
) -> Result:
    _check("gru_step_backward", 3, hidden, gates_x=gates_x, gates_h=gates_h)
    check_float("gru_step_backward", grad, hidden)
    if grad.shape != hidden.shape:
        raise ShapeError(f"[gru_step_backward] grad must have shape {hidden.shape}, got {grad.shape}")
    return (7 * hidden.numel(),), hidden.dtype


def _gru_backward_run(
    out: TensorBase, grad: TensorBase, gates_x: TensorBase, gates_h: TensorBase, hidden: TensorBase
) -> None:
    g, x, h, before = (contiguous(t) for t in (grad, gates_x, gates_h, hidden))
    n = hidden.numel()
    joined = empty(type(out), (2 * n,), out.dtype, out.device)
    run(CONCAT, strided_grid(2 * n, 64), pack(2 * n, n, g.offset, before.offset), g, before, joined)
    push = pack(n, hidden.shape[1], x.offset, h.offset)
    run(GRU_BACKWARD, strided_grid(n, WORKGROUP), push, joined, x, h, out)


def _gru_backward_grad(u: Any, grad: Any, gates_x: Any, gates_h: Any, hidden: Any) -> tuple[Any, ...]:
    """The result times u is ``grad * ((1 - z) * dn * q + u_z * (hidden - n) * dz + u_hidden * z)``."""
    of_x, of_h, u_hidden = _gru_parts(u, hidden.shape)
    (ux_r, ux_z, ux_n), (uh_r, uh_z, uh_n) = _columns(of_x, 3), _columns(of_h, 3)
    (x_r, x_z, x_n), (h_r, h_z, h_n) = _columns(gates_x, 3), _columns(gates_h, 3)
    r, z = sigmoid(x_r + h_r), sigmoid(x_z + h_z)
    n = tanh(x_n + r * h_n)
    dr, dz, dn = r * (1 - r), z * (1 - z), 1 - n * n
    u_r, u_z, away = ux_r + uh_r, ux_z + uh_z, hidden - n
    q = ux_n + uh_n * r + u_r * h_n * dr
    slope = grad * (1 - z) * dn
    through = dn * grad * (-2 * (1 - z) * n * q - u_z * dz)  # the gradient of n, before its tanh
    of_r = slope * (uh_n * dr + u_r * h_n * dr * (1 - 2 * r)) + through * h_n * dr
    of_z = grad * dz * (u_z * away * (1 - 2 * z) + u_hidden - dn * q)
    return (
        (1 - z) * dn * q + u_z * away * dz + u_hidden * z,
        cat([of_r, of_z, through], 1),
        cat([of_r, of_z, slope * u_r * dr + through * r], 1),
        u_z * grad * dz,
    )


@export()
@op(
    infer=_gru_backward_shape,
    kernel=Kernel(_gru_backward_run, (GRU_BACKWARD, CONCAT)),
    examples=(
        example((2, 3), (2, 9), (2, 9), (2, 3)),
        example((13, 7), (13, 21), (13, 21), (13, 7)),
        example((1, 1), (1, 3), (1, 3), (1, 1)),
        example((67, 5), (67, 15), (67, 15), (67, 5)),
        example((0, 5), (0, 15), (0, 15), (0, 5)),
    ),
    grad=_gru_backward_grad,
)
def gru_step_backward(grad: Array, gates_x: Array, gates_h: Array, hidden: Array) -> Array:
    """The gradient of :func:`gru_step`.

    Args:
        grad: of the new hidden state, shape (N, size).
        gates_x, gates_h, hidden: as they were.

    Returns:
        One axis: the gradients of `gates_x`, of `gates_h` and of `hidden`, one behind the other.

    Raises:
        ShapeError, DTypeError

    Example:
        >>> import dl4all as dl
        >>> x = dl.zeros(1, 3)
        >>> dl.ops.gru_step_backward(dl.tensor([[4.0]]), x, x, dl.tensor([[1.0]])).tolist()
        [0.0, 1.0, 2.0, 0.0, 1.0, 1.0, 2.0]
    """
    x_r, x_z, x_n = np.split(gates_x, 3, axis=1)
    h_r, h_z, h_n = np.split(gates_h, 3, axis=1)
    r, z = logistic(x_r + h_r), logistic(x_z + h_z)
    n = np.tanh(x_n + r * h_n)
    of_n = grad * (1 - z) * (1 - n * n)
    of_r = of_n * h_n * (r * (1 - r))
    of_z = grad * (hidden - n) * (z * (1 - z))
    matrices = (
        np.concatenate([of_r, of_z, of_n], axis=1), np.concatenate([of_r, of_z, of_n * r], axis=1), grad * z,
    )  # fmt: skip
    return np.concatenate([matrix.reshape(-1) for matrix in matrices])


# For layers: several results of one node


def lstm_states(gates_x: T, gates_h: T, cell: T) -> tuple[T, T]:
    """Hidden state and cell of :func:`lstm_step`, each on its own; their gradients come back as one."""
    with tape.gradients(False):
        both = lstm_step(gates_x, gates_h, cell)
    states = tuple(tape.alias(both[k]) for k in range(2))

    def backward(grads: Any, saved: Any, needs: Any) -> Any:
        rows, size = cell_shape
        given = [reshape(_or_zeros(g, saved[2], cell_shape), 1, rows, size) for g in grads]
        return _lstm_grad(cat(given), *saved)

    cell_shape = cell.shape
    tape.add_node("lstm_step", [gates_x, gates_h, cell], states, backward, (gates_x, gates_h, cell))
    return states  # type: ignore[return-value]


def rows_apart(input: T, sizes: Sequence[int]) -> list[T]:
    """The first axis cut into parts of these sizes: views, whose gradients are joined all at once."""
    ends = [0, *itertools.accumulate(sizes)]
    with tape.gradients(False):
        parts = [tape.alias(narrow(input, 0, start, size)) for start, size in zip(ends, sizes, strict=False)]
    shapes = [part.shape for part in parts]

    def backward(grads: Any, saved: Any, needs: Any) -> Any:
        some = next(g for g in grads if g is not None)
        return [cat([_or_zeros(g, some, shape) for g, shape in zip(grads, shapes, strict=True)])]

    tape.add_node("rows_apart", [input], parts, backward)
    return parts  # type: ignore[return-value]


def _or_zeros(gradient: Any, like: TensorBase, shape: Shape) -> Any:
    if gradient is not None:
        return gradient
    made = new_like(like, shape)
    fill_with(made, 0)
    return made
