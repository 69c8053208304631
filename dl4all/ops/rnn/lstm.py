"""One step of an LSTM: the pointwise part in one kernel, and its gradients."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np

from dl4all.errors import ShapeError
from dl4all.ops.activation.smooth import sigmoid
from dl4all.ops.core import tape
from dl4all.ops.core.checks import check_float
from dl4all.ops.core.exports import export
from dl4all.ops.core.kernels.launch import run, shader, strided_grid
from dl4all.ops.core.kernels.push_block import PushBlock
from dl4all.ops.core.op import Kernel, Result, example, op
from dl4all.ops.core.tensor_base import Array, Shape, TensorBase
from dl4all.ops.elementwise.transcendental import tanh
from dl4all.ops.indexing.concatenation import cat
from dl4all.ops.memory.views import contiguous, reshape
from dl4all.ops.rnn import cells
from dl4all.ops.rnn.gates import WORKGROUP, check_gates, matrix_at, split_columns, zeros_if_none

T = TypeVar("T", bound=TensorBase)

LSTM_PUSH = PushBlock("rnn/lstm.comp", "uint n, size, x_offset, h_offset, cell_offset;")
LSTM_BACKWARD_PUSH = PushBlock("rnn/lstm_backward.comp", "uint n, size, g_offset, x_offset, cell_offset;")
LSTM = shader("rnn/lstm.comp", RULE=cells.LSTM.glsl())
LSTM_BACKWARD = shader("rnn/lstm_backward.comp", RULE=cells.LSTM.glsl(), GRADIENT=cells.LSTM.glsl_backward())


def _infer_lstm(gates_x: TensorBase, gates_h: TensorBase, cell: TensorBase) -> Result:
    return (2, *check_gates("lstm_step", 4, cell, gates_x=gates_x, gates_h=gates_h)), cell.dtype


def _run_lstm(out: TensorBase, gates_x: TensorBase, gates_h: TensorBase, cell: TensorBase) -> None:
    operands = [contiguous(t) for t in (gates_x, gates_h, cell)]
    push = LSTM_PUSH.pack(cell.numel(), cell.shape[1], *(t.offset for t in operands))
    run(LSTM, strided_grid(cell.numel(), WORKGROUP), push, *operands, out)


@export(autocast="lower")
@op(
    infer=_infer_lstm,
    kernel=Kernel(_run_lstm, (LSTM,)),
    examples=(
        example((2, 12), (2, 12), (2, 3)),
        example((13, 28), (13, 28), (13, 7)),
        example((1, 4), (1, 4), (1, 1)),
        example((67, 20), (67, 20), (67, 5)),
        example((0, 20), (0, 20), (0, 5)),
    ),
)
def lstm_step(gates_x: Array, gates_h: Array, cell: Array) -> Array:
    """The new hidden state and cell of an LSTM (Hochreiter and Schmidhuber, 1997).

    With the four column blocks of ``gates_x + gates_h``, input, forget, new and output in PyTorch's order:
    ``cell = sigmoid(forget) * cell + sigmoid(input) * tanh(new)``, ``hidden = sigmoid(output) * tanh(cell)``.

    Args:
        gates_x, gates_h: the terms of the gates from input and hidden state, shape (N, 4 * size).
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
    values = cells.step(cells.LSTM, gates_x, gates_h, cell=cell)
    return np.stack([values["next"], values["new_cell"]])


def _infer_lstm_backward(grad: TensorBase, gates: TensorBase, cell: TensorBase) -> Result:
    rows, size = check_gates("lstm_step_backward", 4, cell, gates=gates)
    check_float("lstm_step_backward", grad, cell)
    if grad.shape != (2, rows, size):
        raise ShapeError(f"[lstm_step_backward] grad must have shape {(2, rows, size)}, got {grad.shape}")
    return (5 * rows * size,), cell.dtype


def _run_lstm_backward(out: TensorBase, grad: TensorBase, gates: TensorBase, cell: TensorBase) -> None:
    operands = [contiguous(t) for t in (grad, gates, cell)]
    push = LSTM_BACKWARD_PUSH.pack(cell.numel(), cell.shape[1], *(t.offset for t in operands))
    run(LSTM_BACKWARD, strided_grid(cell.numel(), WORKGROUP), push, *operands, out)


@export()
@op(
    infer=_infer_lstm_backward,
    kernel=Kernel(_run_lstm_backward, (LSTM_BACKWARD,)),
    examples=(
        example((2, 2, 3), (2, 12), (2, 3)),
        example((2, 13, 7), (13, 28), (13, 7)),
        example((2, 1, 1), (1, 4), (1, 1)),
        example((2, 67, 5), (67, 20), (67, 5)),
        example((2, 0, 5), (0, 20), (0, 5)),
    ),
)
def lstm_step_backward(grad: Array, gates: Array, cell: Array) -> Array:
    """The gradient of :func:`lstm_step`; it is the same for both terms of the gates.

    Args:
        grad: the gradient of the hidden state and of the cell, shape (2, N, size).
        gates: the sum of both terms, shape (N, 4 * size).
        cell: shape (N, size).

    Returns:
        One axis: the gradient of the gates, followed by that of the cell.

    Raises:
        ShapeError, DTypeError

    Example:
        >>> import dl4all as dl
        >>> g = dl.tensor([[[0.0]], [[4.0]]])
        >>> dl.ops.lstm_step_backward(g, dl.zeros(1, 4), dl.tensor([[1.0]])).tolist()
        [0.0, 1.0, 2.0, 0.0, 2.0]
    """
    values = cells.step(cells.LSTM, gates, 0.0, cell=cell)
    found = cells.step_backward(cells.LSTM, values, grad=grad[0], grad_cell=grad[1])
    matrices = [np.concatenate([found[name] for name in names], axis=1) for names in cells.LSTM.gradients]
    return np.concatenate([matrix.reshape(-1) for matrix in (*matrices, found["grad_cell"])])


# Gradients


def _split_lstm_gradients(flat: Any, shape: Shape) -> tuple[Any, Any]:
    """The gradients of gates and cell in the result of :func:`lstm_step_backward`."""
    rows, size = shape
    return matrix_at(flat, 0, rows, 4 * size), matrix_at(flat, 4 * rows * size, rows, size)


def _lstm_gradient(g: Any, gates_x: Any, gates_h: Any, cell: Any) -> tuple[Any, Any, Any]:
    flat = lstm_step_backward(g, gates_x + gates_h, cell)
    grad_gates, grad_cell = _split_lstm_gradients(flat, cell.shape)
    return grad_gates, grad_gates, grad_cell


def _lstm_backward_gradient(u: Any, grad: Any, gates: Any, cell: Any) -> tuple[Any, Any, Any]:
    """The gradients of ``sum(u * lstm_step_backward(grad, gates, cell))``.

    The sum is that of ``grad_new_cell * k + grad_hidden * m``. The letters i, f, n, o are the gates after
    their functions, di, df, dn, do the derivatives of these.
    """
    u_gates, u_cell = _split_lstm_gradients(u, cell.shape)
    u_i, u_f, u_n, u_o = split_columns(u_gates, 4)
    i, f, n, o = split_columns(gates, 4)
    i, f, n, o = sigmoid(i), sigmoid(f), tanh(n), sigmoid(o)
    di, df, dn, do = i * (1 - i), f * (1 - f), 1 - n * n, o * (1 - o)
    tanh_cell = tanh(f * cell + i * n)
    d_tanh_cell = 1 - tanh_cell * tanh_cell
    grad_hidden, grad_cell = grad[0], grad[1]
    grad_new_cell = grad_cell + grad_hidden * o * d_tanh_cell
    k = u_i * n * di + u_f * cell * df + u_n * i * dn + u_cell * f
    m = u_o * tanh_cell * do
    through_cell = d_tanh_cell * grad_hidden * (u_o * do - 2 * k * o * tanh_cell)  # by way of the new cell
    gates_gradient = cat(
        [
            grad_new_cell * (u_i * n * di * (1 - 2 * i) + u_n * dn * di) + through_cell * n * di,
            grad_new_cell * (u_f * cell * df * (1 - 2 * f) + u_cell * df) + through_cell * cell * df,
            grad_new_cell * (u_i * di * dn - 2 * u_n * i * n * dn) + through_cell * i * dn,
            grad_hidden * do * (k * d_tanh_cell + u_o * tanh_cell * (1 - 2 * o)),
        ],
        1,
    )
    rows, size = cell.shape
    grad_gradient = cat([reshape(t, 1, rows, size) for t in (o * d_tanh_cell * k + m, k)])
    return grad_gradient, gates_gradient, grad_new_cell * u_f * df + through_cell * f


lstm_step.defgrad(_lstm_gradient)
lstm_step_backward.defgrad(_lstm_backward_gradient)


def lstm_states(gates_x: T, gates_h: T, cell: T) -> tuple[T, T]:
    """Hidden state and cell of :func:`lstm_step` as two tensors of one node."""
    with tape.gradients(False):
        both = lstm_step(gates_x, gates_h, cell)
    states = tuple(tape.alias(both[k]) for k in range(2))
    shape = cell.shape

    def backward(grads: Any, saved: Any, needs: Any) -> Any:
        gradients = [reshape(zeros_if_none(g, saved[2], shape), 1, *shape) for g in grads]
        return _lstm_gradient(cat(gradients), *saved)

    tape.add_node("lstm_step", [gates_x, gates_h, cell], states, backward, (gates_x, gates_h, cell))
    return states  # type: ignore[return-value]
