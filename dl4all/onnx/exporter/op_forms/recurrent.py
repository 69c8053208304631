"""Recurrent layers and cells."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dl4all.graph.ir.graph import Operand
from dl4all.onnx.exporter.recording import OpCall
from dl4all.onnx.exporter.writer import GraphWriter, written

ORDERS = {"lstm": (0, 3, 1, 2), "gru": (1, 0, 2), "tanh": (0,), "relu": (0,)}
"""ONNX's gates among PyTorch's."""


def _ordered(w: GraphWriter, operand: Operand, mode: str) -> str:
    """Rows of gates in ONNX's order."""
    name, order = w.get(operand), ORDERS[mode]
    if len(order) == 1:
        return name
    rows = operand.shape[0] // len(order)
    parts = [w.add("Slice", [name, *(w.ints([n]) for n in (i * rows, (i + 1) * rows, 0))]) for i in order]
    return w.add("Concat", parts, axis=0)


@written("recurrent_sequence")
def recurrent(w: GraphWriter, call: OpCall) -> str:
    """One direction of a layer; the product with its input is part of the operator."""
    gates, hidden, weight, cell, bias, projection = call.operands
    given, mode = call.arguments, call.arguments["mode"]
    sizes, producer = given["sizes"], w.producers.get(gates.value.buffer)
    if projection is not None or len(set(sizes)) != 1 or producer is None or producer.name != "linear":
        form = "rows of unlike lengths, proj_size, or weights in few bits"
        raise w.refused(f"this {mode} layer has no form here: {form}")
    steps, batch, size = len(sizes), sizes[0], weight.shape[1]
    x, weight_x, bias_x = producer.operands
    inputs = w.add("Reshape", [w.get(x), w.ints([steps, batch, x.shape[-1]])])

    def leading(name: str, shape: Sequence[int]) -> str:
        return w.add("Reshape", [name, w.ints([1, *shape])])

    rows = weight.shape[0]
    zeros = w.constant(np.zeros(rows, gates.dtype))
    halves = [zeros if b is None else _ordered(w, b, mode) for b in (bias_x, bias)]
    operator = {"lstm": "LSTM", "gru": "GRU"}.get(mode, "RNN")
    more: dict[str, Any] = {"hidden_size": size, "direction": "reverse" if given["reverse"] else "forward"}
    if mode == "gru":
        more["linear_before_reset"] = 1
    if operator == "RNN":
        more["activations"] = ["Tanh" if mode == "tanh" else "Relu"]
    names = [
        inputs, *(leading(_ordered(w, t, mode), t.shape) for t in (weight_x, weight)),
        leading(w.add("Concat", halves, axis=0), (2 * rows,)), "",
        *(leading(w.get(state), (batch, size)) for state in (hidden, cell) if state is not None),
    ]  # fmt: skip
    results = w.add_many(operator, names, 3 if cell is not None else 2, **more)
    pieces = [(results[0], (steps, 1, batch, size)), *((name, (1, batch, size)) for name in results[1:])]
    w.define_pieces(call.result, pieces)
    return ""


def _blocks(w: GraphWriter, operand: Operand, count: int) -> list[str]:
    """The blocks of columns of gates."""
    size, name = operand.shape[1] // count, w.get(operand)
    return [
        w.add("Slice", [name, *(w.ints([n]) for n in (i * size, (i + 1) * size, 1))]) for i in range(count)
    ]


@written("lstm_step")
def lstm_step(w: GraphWriter, call: OpCall) -> str:
    """The hidden state and the cell, one after the other."""
    ours, theirs, cell = call.operands
    pairs = zip(_blocks(w, ours, 4), _blocks(w, theirs, 4), strict=True)
    i, f, new, o = (w.add("Add", list(pair)) for pair in pairs)
    i, f, o = (w.add("Sigmoid", [gate]) for gate in (i, f, o))
    kept = w.add("Mul", [f, w.get(cell)])
    state = w.add("Add", [kept, w.add("Mul", [i, w.add("Tanh", [new])])])
    hidden = w.add("Mul", [o, w.add("Tanh", [state])])
    w.define_pieces(call.result, [(hidden, tuple(cell.shape)), (state, tuple(cell.shape))])
    return ""


@written("gru_step")
def gru_step(w: GraphWriter, call: OpCall) -> str:
    ours, theirs, hidden = call.operands
    (r, z, n), (hr, hz, hn) = _blocks(w, ours, 3), _blocks(w, theirs, 3)
    reset, update = (w.add("Sigmoid", [w.add("Add", list(pair))]) for pair in ((r, hr), (z, hz)))
    new = w.add("Tanh", [w.add("Add", [n, w.add("Mul", [reset, hn])])])
    away = w.add("Sub", [w.get(hidden), new])
    return w.add("Add", [new, w.add("Mul", [update, away])])
