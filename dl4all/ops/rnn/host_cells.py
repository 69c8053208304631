"""One time step of recurrent cells on the host, in memory that is there already."""

from __future__ import annotations

from typing import Any

import numpy as np

from dl4all.ops.core.expressions.branchless import keep_where


def _logistic(x: Any) -> None:
    """``1 / (1 + exp(-x))`` in place."""
    np.negative(x, out=x)
    np.exp(x, out=x)
    x += 1
    np.reciprocal(x, out=x)


def lstm(gates: Any, hidden: Any, cell: Any, saved: Any | None, products: Any) -> None:
    """Turn the sums `gates` into the gates, and `cell` and `hidden` into the next ones."""
    size = cell.shape[1]
    _logistic(gates[:, : 2 * size])
    new = gates[:, 2 * size : 3 * size]
    np.tanh(new, out=new)
    _logistic(gates[:, 3 * size :])
    if saved is not None:
        saved[:, : 4 * size] = gates
        saved[:, 4 * size : 5 * size] = cell
    cell *= gates[:, size : 2 * size]
    new *= gates[:, :size]
    cell += new
    np.tanh(cell, out=hidden)
    if saved is not None:
        saved[:, 5 * size :] = hidden
    hidden *= gates[:, 3 * size :]


def lstm_backward(grad: Any, grad_cell: Any, saved: Any, gates: Any) -> None:
    """Fill the gradient of the gates and turn that of the new cell into that of the old one."""
    size = grad.shape[1]
    i, f, n, o, cell, tanh_cell = (saved[:, k * size : (k + 1) * size] for k in range(6))
    d_i, d_f, d_n, d_o = (gates[:, k * size : (k + 1) * size] for k in range(4))
    np.multiply(tanh_cell, tanh_cell, out=d_o)
    np.subtract(1, d_o, out=d_o)
    d_o *= o
    d_o *= grad
    grad_cell += d_o
    np.subtract(1, saved[:, : 2 * size], out=gates[:, : 2 * size])
    gates[:, : 2 * size] *= saved[:, : 2 * size]
    d_i *= n
    d_i *= grad_cell
    d_f *= cell
    d_f *= grad_cell
    np.multiply(n, n, out=d_n)
    np.subtract(1, d_n, out=d_n)
    d_n *= i
    d_n *= grad_cell
    np.subtract(1, o, out=d_o)
    d_o *= o
    d_o *= tanh_cell
    d_o *= grad
    grad_cell *= f


def gru(gates: Any, hidden: Any, cell: Any, saved: Any | None, products: Any) -> None:
    """Turn the input's terms `gates` and the hidden state's `products` into the next hidden state."""
    size = hidden.shape[1]
    both, new = gates[:, : 2 * size], gates[:, 2 * size :]
    both += products[:, : 2 * size]
    _logistic(both)
    if saved is not None:
        saved[:, 3 * size :] = products[:, 2 * size :]
    products[:, 2 * size :] *= gates[:, :size]
    new += products[:, 2 * size :]
    np.tanh(new, out=new)
    if saved is not None:
        saved[:, : 3 * size] = gates
    hidden -= new
    hidden *= gates[:, size : 2 * size]
    hidden += new


def gru_backward(grad: Any, before: Any, saved: Any, gates: Any, gates_h: Any) -> None:
    """Fill the gradients of both terms of the gates, and turn `grad` into what goes on to the old state."""
    size = grad.shape[1]
    r, z, n, h_new = (saved[:, k * size : (k + 1) * size] for k in range(4))
    d_r, d_z, d_n = (gates[:, k * size : (k + 1) * size] for k in range(3))
    np.multiply(n, n, out=d_n)
    np.subtract(1, d_n, out=d_n)
    np.subtract(1, saved[:, : 2 * size], out=gates[:, : 2 * size])
    d_n *= d_z
    d_n *= grad
    d_r *= r
    d_r *= h_new
    d_r *= d_n
    d_z *= z
    d_z *= grad
    difference = gates_h[:, :size]
    np.subtract(before, n, out=difference)
    d_z *= difference
    gates_h[:, : 2 * size] = gates[:, : 2 * size]
    np.multiply(d_n, r, out=gates_h[:, 2 * size :])
    grad *= z


def tanh(gates: Any, hidden: Any, cell: Any, saved: Any | None, products: Any) -> None:
    """The next hidden state of an RNN."""
    np.tanh(gates, out=hidden)


def relu(gates: Any, hidden: Any, cell: Any, saved: Any | None, products: Any) -> None:
    """The next hidden state of an RNN with relu."""
    np.maximum(gates, 0, out=hidden)


def tanh_backward(grad: Any, outputs: Any, gates: Any) -> None:
    """Fill the gradient of the sum before tanh."""
    np.multiply(outputs, outputs, out=gates)
    np.subtract(1, gates, out=gates)
    gates *= grad


def relu_backward(grad: Any, outputs: Any, gates: Any) -> None:
    """Fill the gradient of the sum before relu."""
    keep_where(grad, outputs > 0, out=gates)
