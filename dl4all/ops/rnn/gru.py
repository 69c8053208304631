"""One step of a GRU: the pointwise part in one kernel, and its gradients."""

from __future__ import annotations

from typing import Any

import numpy as np

from dl4all.errors import ShapeError
from dl4all.ops.activation.smooth import sigmoid
from dl4all.ops.core.checks import check_float
from dl4all.ops.core.exports import export
from dl4all.ops.core.kernels.launch import run, shader, strided_grid
from dl4all.ops.core.kernels.push_block import PushBlock
from dl4all.ops.core.op import Kernel, Result, empty, example, op
from dl4all.ops.core.tensor_base import Array, Shape, TensorBase
from dl4all.ops.elementwise.transcendental import tanh
from dl4all.ops.indexing.concatenation import cat
from dl4all.ops.memory.copy import CONCAT, CONCAT_PUSH
from dl4all.ops.memory.views import contiguous
from dl4all.ops.rnn import cells
from dl4all.ops.rnn.gates import WORKGROUP, check_gates, matrix_at, split_columns

GRU_PUSH = PushBlock("rnn/gru.comp", "uint n, size, x_offset, h_offset, hidden_offset;")
GRU_BACKWARD_PUSH = PushBlock("rnn/gru_backward.comp", "uint n, size, x_offset, h_offset;")
GRU = shader("rnn/gru.comp", RULE=cells.GRU.glsl())
GRU_BACKWARD = shader("rnn/gru_backward.comp", RULE=cells.GRU.glsl(), GRADIENT=cells.GRU.glsl_backward())


def _infer_gru(gates_x: TensorBase, gates_h: TensorBase, hidden: TensorBase) -> Result:
    check_gates("gru_step", 3, hidden, gates_x=gates_x, gates_h=gates_h)
    return hidden.shape, hidden.dtype


def _run_gru(out: TensorBase, gates_x: TensorBase, gates_h: TensorBase, hidden: TensorBase) -> None:
    operands = [contiguous(t) for t in (gates_x, gates_h, hidden)]
    push = GRU_PUSH.pack(hidden.numel(), hidden.shape[1], *(t.offset for t in operands))
    run(GRU, strided_grid(hidden.numel(), WORKGROUP), push, *operands, out)


@export(autocast="lower")
@op(
    infer=_infer_gru,
    kernel=Kernel(_run_gru, (GRU,)),
    examples=(
        example((2, 9), (2, 9), (2, 3)),
        example((13, 21), (13, 21), (13, 7)),
        example((1, 3), (1, 3), (1, 1)),
        example((67, 15), (67, 15), (67, 5)),
        example((0, 15), (0, 15), (0, 5)),
    ),
)
def gru_step(gates_x: Array, gates_h: Array, hidden: Array) -> Array:
    """The new hidden state of a GRU (Cho et al., arXiv:1406.1078).

    With the three blocks of columns of each term, reset, update and new in PyTorch's order:
    ``reset = sigmoid(x_reset + h_reset)``, ``update = sigmoid(x_update + h_update)``,
    ``new = tanh(x_new + reset * h_new)``, ``hidden = (1 - update) * new + update * hidden``.

    Args:
        gates_x, gates_h: the terms of the gates from input and hidden state, shape (N, 3 * size).
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
    return cells.step(cells.GRU, gates_x, gates_h, hidden=hidden)["next"]


def _infer_gru_backward(
    grad: TensorBase, gates_x: TensorBase, gates_h: TensorBase, hidden: TensorBase
) -> Result:
    check_gates("gru_step_backward", 3, hidden, gates_x=gates_x, gates_h=gates_h)
    check_float("gru_step_backward", grad, hidden)
    if grad.shape != hidden.shape:
        raise ShapeError(f"[gru_step_backward] grad must have shape {hidden.shape}, got {grad.shape}")
    return (7 * hidden.numel(),), hidden.dtype


def _run_gru_backward(
    out: TensorBase, grad: TensorBase, gates_x: TensorBase, gates_h: TensorBase, hidden: TensorBase
) -> None:
    g, x, h, old_hidden = (contiguous(t) for t in (grad, gates_x, gates_h, hidden))
    n = hidden.numel()
    joined = empty(type(out), (2 * n,), out.dtype, out.device)
    run(
        CONCAT,
        strided_grid(2 * n, 64),
        CONCAT_PUSH.pack(2 * n, n, g.offset, old_hidden.offset),
        g,
        old_hidden,
        joined,
    )
    push = GRU_BACKWARD_PUSH.pack(n=n, size=hidden.shape[1], x_offset=x.offset, h_offset=h.offset)
    run(GRU_BACKWARD, strided_grid(n, WORKGROUP), push, joined, x, h, out)


@export()
@op(
    infer=_infer_gru_backward,
    kernel=Kernel(_run_gru_backward, (GRU_BACKWARD, CONCAT)),
    examples=(
        example((2, 3), (2, 9), (2, 9), (2, 3)),
        example((13, 7), (13, 21), (13, 21), (13, 7)),
        example((1, 1), (1, 3), (1, 3), (1, 1)),
        example((67, 5), (67, 15), (67, 15), (67, 5)),
        example((0, 5), (0, 15), (0, 15), (0, 5)),
    ),
)
def gru_step_backward(grad: Array, gates_x: Array, gates_h: Array, hidden: Array) -> Array:
    """The gradient of :func:`gru_step`.

    Args:
        grad: the gradient of the new hidden state, shape (N, size).
        gates_x, gates_h, hidden: the operands of the step.

    Returns:
        One axis: the gradients of `gates_x`, `gates_h` and `hidden`, concatenated.

    Raises:
        ShapeError, DTypeError

    Example:
        >>> import dl4all as dl
        >>> x = dl.zeros(1, 3)
        >>> dl.ops.gru_step_backward(dl.tensor([[4.0]]), x, x, dl.tensor([[1.0]])).tolist()
        [0.0, 1.0, 2.0, 0.0, 1.0, 1.0, 2.0]
    """
    values = cells.step(cells.GRU, gates_x, gates_h, hidden=hidden)
    found = cells.step_backward(cells.GRU, values, grad=grad)
    matrices = [np.concatenate([found[name] for name in names], axis=1) for names in cells.GRU.gradients]
    return np.concatenate([matrix.reshape(-1) for matrix in (*matrices, found["grad"])])


# Gradients


def _split_gru_gradients(flat: Any, shape: Shape) -> tuple[Any, Any, Any]:
    """The gradients of `gates_x`, `gates_h` and `hidden` in the result of :func:`gru_step_backward`."""
    rows, size = shape
    n = rows * size
    return (
        matrix_at(flat, 0, rows, 3 * size),
        matrix_at(flat, 3 * n, rows, 3 * size),
        matrix_at(flat, 6 * n, rows, size),
    )


def _gru_gradient(g: Any, gates_x: Any, gates_h: Any, hidden: Any) -> tuple[Any, Any, Any]:
    return _split_gru_gradients(gru_step_backward(contiguous(g), gates_x, gates_h, hidden), hidden.shape)


def _gru_backward_gradient(
    u: Any, grad: Any, gates_x: Any, gates_h: Any, hidden: Any
) -> tuple[Any, Any, Any, Any]:
    """The gradients of ``sum(u * gru_step_backward(grad, gates_x, gates_h, hidden))``.

    The sum is that of ``grad * ((1 - z) * dn * q + u_z * (hidden - n) * dz + u_hidden * z)``. The letters r,
    z, n are the gates after their functions, dr, dz, dn the derivatives of these.
    """
    u_x, u_h, u_hidden = _split_gru_gradients(u, hidden.shape)
    (ux_r, ux_z, ux_n), (uh_r, uh_z, uh_n) = split_columns(u_x, 3), split_columns(u_h, 3)
    (x_r, x_z, x_n), (h_r, h_z, h_n) = split_columns(gates_x, 3), split_columns(gates_h, 3)
    r, z = sigmoid(x_r + h_r), sigmoid(x_z + h_z)
    n = tanh(x_n + r * h_n)
    dr, dz, dn = r * (1 - r), z * (1 - z), 1 - n * n
    u_r, u_z, difference = ux_r + uh_r, ux_z + uh_z, hidden - n
    q = ux_n + uh_n * r + u_r * h_n * dr
    slope = grad * (1 - z) * dn
    grad_n = dn * grad * (-2 * (1 - z) * n * q - u_z * dz)  # before the tanh
    grad_r = slope * (uh_n * dr + u_r * h_n * dr * (1 - 2 * r)) + grad_n * h_n * dr
    grad_z = grad * dz * (u_z * difference * (1 - 2 * z) + u_hidden - dn * q)
    return (
        (1 - z) * dn * q + u_z * difference * dz + u_hidden * z,
        cat([grad_r, grad_z, grad_n], 1),
        cat([grad_r, grad_z, slope * u_r * dr + grad_n * r], 1),
        u_z * grad * dz,
    )


gru_step.defgrad(_gru_gradient)
gru_step_backward.defgrad(_gru_backward_gradient)
