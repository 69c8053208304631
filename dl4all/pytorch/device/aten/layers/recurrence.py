"""Single steps of LSTM and GRU, of which PyTorch makes the layers of a device that is not its own.

The workspaces, which PyTorch only hands on to the gradients, have what dl4all's gradients read.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from dl4all import ops
from dl4all.ops.attention.flash import split_flat
from dl4all.ops.indexing.gather_scatter import expanded_number
from dl4all.pytorch.device.dispatch.registration import LIBRARY, declare


def _biased(gates: Any, bias: Any) -> Any:
    return gates if bias is None else ops.add(gates, bias)


def lstm_cell(
    input_gates: Any, hidden_gates: Any, cx: Any, input_bias: Any = None, hidden_bias: Any = None
) -> tuple[Any, Any, Any]:
    """The new hidden state and cell; the workspace is the sum of all terms of the gates."""
    bias = input_bias if hidden_bias is None else _biased(hidden_bias, input_bias)
    gates = _biased(input_gates, bias)
    states = ops.lstm_step(gates, hidden_gates, cx)
    return states[0], states[1], ops.add(gates, hidden_gates)


def lstm_cell_backward(
    grad_hy: Any, grad_cy: Any, cx: Any, cy: Any, workspace: Any, has_bias: bool
) -> tuple[Any, Any, Any]:
    """The gradients of the gates, of the cell, and of either bias."""
    if grad_hy is None and grad_cy is None:
        return None, None, None
    zeros = expanded_number(cx, 0, cx.shape)
    both = [zeros if one is None else one for one in (grad_hy, grad_cy)]
    flat = ops.lstm_step_backward(ops.stack(both), workspace, cx)
    gates, cell = split_flat(flat, workspace.shape, cx.shape)
    return gates, cell, ops.sum(gates, 0) if has_bias else None


def gru_cell(
    input_gates: Any, hidden_gates: Any, hx: Any, input_bias: Any = None, hidden_bias: Any = None
) -> tuple[Any, Any]:
    """The new hidden state; the workspace is both terms of the gates and the old state, one after another."""
    terms = _biased(input_gates, input_bias), _biased(hidden_gates, hidden_bias), hx
    return ops.gru_step(*terms), ops.cat([ops.reshape(term, (-1,)) for term in terms])


def gru_cell_backward(grad_hy: Any, workspace: Any, has_bias: bool) -> tuple[Any, ...]:
    """The gradients of both terms of the gates, of the state, and of both biases."""
    rows, size = grad_hy.shape
    shapes = (rows, 3 * size), (rows, 3 * size), (rows, size)
    terms = split_flat(workspace, *shapes)
    gradients = split_flat(ops.gru_step_backward(grad_hy, *terms), *shapes)
    biases = [ops.sum(gates, 0) if has_bias else None for gates in gradients[:2]]
    return (*gradients, *biases)


declare("_thnn_fused_lstm_cell", lstm_cell)
declare("_thnn_fused_lstm_cell_backward_impl", lstm_cell_backward)
declare("_thnn_fused_gru_cell", gru_cell)
declare("_thnn_fused_gru_cell_backward", gru_cell_backward)


# ATen has no kernels of these for the CPU, on which the fallback calls them.


def lstm_cell_on_cpu(
    input_gates: torch.Tensor,
    hidden_gates: torch.Tensor,
    cx: torch.Tensor,
    input_bias: torch.Tensor | None = None,
    hidden_bias: torch.Tensor | None = None,
) -> tuple[torch.Tensor, ...]:
    workspace = input_gates + hidden_gates
    for bias in (input_bias, hidden_bias):
        workspace = workspace if bias is None else workspace + bias
    i, f, n, o = workspace.chunk(4, 1)
    cy = f.sigmoid() * cx + i.sigmoid() * n.tanh()
    return o.sigmoid() * cy.tanh(), cy, workspace


def lstm_cell_backward_on_cpu(
    grad_hy: torch.Tensor | None,
    grad_cy: torch.Tensor | None,
    cx: torch.Tensor,
    cy: torch.Tensor,
    workspace: torch.Tensor,
    has_bias: bool,
) -> tuple[torch.Tensor | None, ...]:
    if grad_hy is None and grad_cy is None:
        return None, None, None
    i, f, n, o = workspace.chunk(4, 1)
    i, f, n, o = i.sigmoid(), f.sigmoid(), n.tanh(), o.sigmoid()
    tanh_cell = cy.tanh()
    grad_hy = torch.zeros_like(cx) if grad_hy is None else grad_hy
    grad_cell = grad_hy * o * (1 - tanh_cell * tanh_cell)
    grad_cell = grad_cell if grad_cy is None else grad_cell + grad_cy
    gates = torch.cat(
        [
            grad_cell * n * i * (1 - i),
            grad_cell * cx * f * (1 - f),
            grad_cell * i * (1 - n * n),
            grad_hy * tanh_cell * o * (1 - o),
        ],
        1,
    )
    return gates, grad_cell * f, gates.sum(0) if has_bias else None


def gru_cell_on_cpu(
    input_gates: torch.Tensor,
    hidden_gates: torch.Tensor,
    hx: torch.Tensor,
    input_bias: torch.Tensor | None = None,
    hidden_bias: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    x = input_gates if input_bias is None else input_gates + input_bias
    h = hidden_gates if hidden_bias is None else hidden_gates + hidden_bias
    x_r, x_z, x_n = x.chunk(3, 1)
    h_r, h_z, h_n = h.chunk(3, 1)
    z = (x_z + h_z).sigmoid()
    n = (x_n + (x_r + h_r).sigmoid() * h_n).tanh()
    return (1 - z) * n + z * hx, torch.cat([x.flatten(), h.flatten(), hx.flatten()])


def gru_cell_backward_on_cpu(
    grad_hy: torch.Tensor, workspace: torch.Tensor, has_bias: bool
) -> tuple[torch.Tensor | None, ...]:
    rows, size = grad_hy.shape
    shapes = (rows, 3 * size), (rows, 3 * size), (rows, size)
    x, h, hx = (
        part.reshape(shape)
        for part, shape in zip(workspace.split([math.prod(shape) for shape in shapes]), shapes, strict=True)
    )
    x_r, x_z, x_n = x.chunk(3, 1)
    h_r, h_z, h_n = h.chunk(3, 1)
    r, z = (x_r + h_r).sigmoid(), (x_z + h_z).sigmoid()
    n = (x_n + r * h_n).tanh()
    grad_n = grad_hy * (1 - z) * (1 - n * n)
    grad_r = grad_n * h_n * r * (1 - r)
    grad_z = grad_hy * (hx - n) * z * (1 - z)
    of_x, of_h = torch.cat([grad_r, grad_z, grad_n], 1), torch.cat([grad_r, grad_z, grad_n * r], 1)
    biases = [gates.sum(0) if has_bias else None for gates in (of_x, of_h)]
    return (of_x, of_h, grad_hy * z, *biases)


for _name, _function in {
    "_thnn_fused_lstm_cell": lstm_cell_on_cpu,
    "_thnn_fused_lstm_cell_backward_impl": lstm_cell_backward_on_cpu,
    "_thnn_fused_gru_cell": gru_cell_on_cpu,
    "_thnn_fused_gru_cell_backward": gru_cell_backward_on_cpu,
}.items():
    LIBRARY.impl(_name, _function, "CPU")
