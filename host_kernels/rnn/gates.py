"""The gates of recurrent cells: from sums to states, and from gradients of states to those of sums.

The functions write code for one vector of units. What they save is what the gradients take, in this order:
for an LSTM its four gates, the old cell and the new one's tanh; for a GRU its three gates and the product of
the hidden state that belongs to the new one.
"""

from __future__ import annotations

from collections.abc import Sequence

from dl4all.runtime.cpu.llvm import functions
from dl4all.runtime.cpu.llvm.ir import Code, IrValue


def lstm(code: Code, sums: Sequence[IrValue], cell: IrValue) -> tuple[IrValue, IrValue, list[IrValue]]:
    """Hidden state, cell, and what is saved."""
    i, f, o = (functions.sigmoid(code, sums[gate]) for gate in (0, 1, 3))
    new = functions.tanh(code, sums[2])
    new_cell = f * cell + i * new
    tanh_cell = functions.tanh(code, new_cell)
    return o * tanh_cell, new_cell, [i, f, new, o, cell, tanh_cell]


def lstm_backward(
    grad: IrValue, grad_cell: IrValue, saved: Sequence[IrValue]
) -> tuple[list[IrValue], IrValue]:
    """The gradients of the sums and of the old cell."""
    i, f, new, o, cell, tanh_cell = saved
    through = grad_cell + (1.0 - tanh_cell * tanh_cell) * o * grad
    gates = [
        (1.0 - i) * i * new * through,
        (1.0 - f) * f * cell * through,
        (1.0 - new * new) * i * through,
        (1.0 - o) * o * tanh_cell * grad,
    ]
    return gates, through * f


def gru(
    code: Code, terms: Sequence[IrValue], products: Sequence[IrValue], hidden: IrValue
) -> tuple[IrValue, list[IrValue]]:
    """Hidden state, and what is saved; `terms` come from the input, `products` from the hidden state."""
    reset, update = (functions.sigmoid(code, terms[gate] + products[gate]) for gate in (0, 1))
    new = functions.tanh(code, terms[2] + reset * products[2])
    return (hidden - new) * update + new, [reset, update, new, products[2]]


def gru_backward(
    grad: IrValue, before: IrValue, saved: Sequence[IrValue]
) -> tuple[list[IrValue], list[IrValue], IrValue]:
    """The gradients of both terms of the gates, and what goes on to the old hidden state directly."""
    reset, update, new, product = saved
    grad_new = (1.0 - new * new) * (1.0 - update) * grad
    grad_reset = (1.0 - reset) * reset * product * grad_new
    grad_update = (1.0 - update) * update * grad * (before - new)
    return [grad_reset, grad_update, grad_new], [grad_reset, grad_update, grad_new * reset], grad * update


def rnn(code: Code, total: IrValue, mode: str) -> IrValue:
    """The hidden state of an RNN."""
    if mode == "tanh":
        return functions.tanh(code, total)
    return code.intrinsic("maximum", total, code.constant(total.type, 0.0))


def rnn_backward(code: Code, grad: IrValue, output: IrValue, mode: str) -> IrValue:
    """The gradient of the sum."""
    if mode == "tanh":
        return (1.0 - output * output) * grad
    return code.select(output > 0.0, grad, code.constant(grad.type, 0.0))
