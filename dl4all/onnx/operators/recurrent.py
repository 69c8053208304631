"""Recurrent layers: as one kernel where they are those of PyTorch, and step by step otherwise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from dl4all.functions import names as functions
from dl4all.nn import functional as F
from dl4all.nn import recurrence
from dl4all.onnx.call import Call
from dl4all.onnx.operators.shape import reversed_indices
from dl4all.onnx.registry import operator
from dl4all.tensor.creation import zeros_like

Activation = Callable[[Any], Any]

ACTIVATIONS: dict[str, Callable[[Any, float | None, float | None], Any]] = {
    "relu": lambda x, a, b: functions.relu(x),
    "tanh": lambda x, a, b: functions.tanh(x),
    "sigmoid": lambda x, a, b: functions.sigmoid(x),
    "affine": lambda x, a, b: x * _or(a, 1.0) + _or(b, 0.0),
    "leakyrelu": lambda x, a, b: F.leaky_relu(x, _or(a, 0.01)),
    "thresholdedrelu": lambda x, a, b: F.threshold(x, _or(a, 1.0), 0.0),
    "scaledtanh": lambda x, a, b: functions.tanh(x * _or(b, 1.0)) * _or(a, 1.0),
    "hardsigmoid": lambda x, a, b: functions.clamp(x * _or(a, 0.2) + _or(b, 0.5), 0, 1),
    "elu": lambda x, a, b: F.elu(x, _or(a, 1.0)),
    "softsign": lambda x, a, b: F.softsign(x),
    "softplus": lambda x, a, b: F.softplus(x),
}
"""Functions of gates by their names in lower letters, with the numbers alpha and beta."""


def _or(value: float | None, default: float) -> float:
    return default if value is None else value


class Rule(NamedTuple):
    """The kind of a layer."""

    gates: int
    states: int
    activations: tuple[str, ...]
    order: tuple[int, ...]  # of the gates in PyTorch's weights


RULES = {
    "RNN": Rule(1, 1, ("tanh",), (0,)),
    "GRU": Rule(3, 1, ("sigmoid", "tanh"), (1, 0, 2)),
    "LSTM": Rule(4, 2, ("sigmoid", "tanh", "tanh"), (0, 2, 3, 1)),
}


class LayerDirection(NamedTuple):
    """One direction: its weights, activations, and what it does besides."""

    kind: str
    weight: Any  # (gates * hidden, inputs)
    recurrent: Any  # (gates * hidden, hidden)
    bias: Any  # (gates * hidden,), or None
    recurrent_bias: Any
    peepholes: Any  # (3 * hidden,), or None
    activations: tuple[Activation, ...]
    names: tuple[str, ...]
    clip: float | None
    coupled: bool  # whether the forget gate is what the input gate leaves
    after: bool  # whether a GRU's reset gate comes after the product


def _layer(
    call: Call, direction: int, weight: Any, recurrent: Any, bias: Any, peepholes: Any
) -> LayerDirection:
    kind = call.node.op_type
    rule = RULES[kind]
    count = len(rule.activations)
    names = tuple(n.lower() for n in call.get("activations") or ())[direction * count :][:count]
    names = names or rule.activations
    alphas, betas = (iter(call.get(f"activation_{name}") or ()) for name in ("alpha", "beta"))
    if direction:  # numbers are given to the functions that have them, in order
        for name in tuple(n.lower() for n in call.get("activations") or ())[:count]:
            _numbers(name, alphas, betas)
    chosen = []
    for name in names:
        if name not in ACTIVATIONS:
            raise call.refuse(f"the activation {name!r}")
        chosen.append(_with_numbers(ACTIVATIONS[name], *_numbers(name, alphas, betas)))
    rows = rule.gates * call.get("hidden_size", recurrent.shape[-1])
    both = None if bias is None else call.tensor(bias)[direction]
    own, back = (None, None) if both is None else (both[:rows], both[rows:])
    peeps = None if peepholes is None else call.tensor(peepholes)[direction]
    return LayerDirection(
        kind, weight[direction], recurrent[direction], own, back, peeps, tuple(chosen), names,
        call.get("clip"), call.flag("input_forget"), call.flag("linear_before_reset"),
    )  # fmt: skip


WITH_ALPHA = ("affine", "leakyrelu", "thresholdedrelu", "scaledtanh", "hardsigmoid", "elu")
WITH_BETA = ("affine", "scaledtanh", "hardsigmoid")


def _numbers(name: str, alphas: Any, betas: Any) -> tuple[float | None, float | None]:
    return (
        next(alphas, None) if name in WITH_ALPHA else None, next(betas, None) if name in WITH_BETA else None,
    )  # fmt: skip


def _with_numbers(function: Any, alpha: float | None, beta: float | None) -> Activation:
    return lambda x: function(x, alpha, beta)


@operator("RNN", "GRU", "LSTM", reads=(4,))
def recurrent(
    call: Call,
    x: Any,
    weight: Any,
    recurrent: Any,
    bias: Any = None,
    lengths: Any = None,
    hidden: Any = None,
    cell: Any = None,
    peepholes: Any = None,
) -> Any:
    rule = RULES[call.node.op_type]
    x, weight, recurrent = call.tensors(x, weight, recurrent)
    batch_first = call.flag("layout")
    x = x.transpose(0, 1) if batch_first else x
    steps, batch = x.shape[:2]
    directions, size = weight.shape[0], recurrent.shape[-1]
    starts = []
    for given in (hidden, cell)[: rule.states]:
        if given is None:
            starts.append(x.new_zeros((directions, batch, size)))
        else:
            start = call.tensor(given)
            starts.append(start.transpose(0, 1) if batch_first else start)
    counts = None if lengths is None else call.host(lengths)
    if counts is not None and (counts == steps).all():
        counts = None
    outputs, lasts = [], []
    for direction in range(directions):
        layer = _layer(call, direction, weight, recurrent, bias, peepholes)
        way = call.choice("direction", "forward", ("reverse", "bidirectional"))
        backwards = way == "reverse" or direction == 1
        states = tuple(start[direction] for start in starts)
        y, last = _run(call, layer, x, states, counts, backwards)
        outputs.append(y)
        lasts.append(last)
    stacked = functions.stack(outputs, 1)  # (steps, directions, batch, hidden)
    ends = [functions.stack([last[i] for last in lasts], 0) for i in range(rule.states)]
    if batch_first:
        stacked, ends = stacked.permute(2, 0, 1, 3), [end.transpose(0, 1) for end in ends]
    return (stacked, *ends)


def _run(
    call: Call, layer: LayerDirection, x: Any, states: tuple[Any, ...], lengths: Any, backwards: bool
) -> tuple[Any, tuple[Any, ...]]:
    """The outputs of all steps, and the last states."""
    rule = RULES[layer.kind]
    usual = layer.names == rule.activations or (layer.kind == "RNN" and layer.names == ("relu",))
    plain = layer.clip is None and layer.peepholes is None and not layer.coupled and lengths is None
    if usual and plain and (layer.kind != "GRU" or layer.after) and x.shape[0] and x.shape[1]:
        return _in_one_kernel(layer, x, states, backwards)
    turned = _turned(call, x, lengths) if backwards else x
    rows = []
    for step in range(x.shape[0]):
        new = _step(layer, turned[step], states)
        if lengths is None:
            states = new
            rows.append(new[0])
        else:  # a row that has ended keeps its state, and its output is 0
            goes_on = call.tensor(np.asarray(step < lengths).reshape(-1, 1))
            states = tuple(functions.where(goes_on, n, old) for n, old in zip(new, states, strict=True))
            rows.append(functions.where(goes_on, new[0], zeros_like(new[0])))
    y = functions.stack(rows, 0) if rows else x.new_zeros((0, *states[0].shape))
    return (_turned(call, y, lengths) if backwards else y), states


def _turned(call: Call, x: Any, lengths: Any) -> Any:
    """Steps in the other order, each row's own."""
    if lengths is None:
        return functions.flip(x, (0,))
    indices = reversed_indices(lengths, x.shape[0]).T[..., None]
    return functions.gather(x, 0, functions.broadcast_to(call.tensor(indices), tuple(x.shape)))


def _in_one_kernel(
    layer: LayerDirection, x: Any, states: tuple[Any, ...], backwards: bool
) -> tuple[Any, tuple[Any, ...]]:
    rule = RULES[layer.kind]
    mode = layer.kind.lower() if layer.kind != "RNN" else layer.names[0]

    def ordered(t: Any) -> Any:
        if t is None or rule.gates == 1:
            return t
        parts = functions.chunk(t, rule.gates, 0)
        return functions.cat([parts[i] for i in rule.order], 0)

    weights = recurrence.Weights(
        ordered(layer.weight), ordered(layer.recurrent), ordered(layer.bias), ordered(layer.recurrent_bias)
    )
    steps, batch, inputs = x.shape
    how = recurrence.Steps(mode, (batch,) * steps, backwards)
    y, last = recurrence.run(x.reshape(steps * batch, inputs), states, weights, how)
    return y.reshape(steps, batch, -1), last


def _clipped(x: Any, limit: float | None) -> Any:
    return x if limit is None else functions.clamp(x, -limit, limit)


def _step(layer: LayerDirection, x: Any, states: tuple[Any, ...]) -> tuple[Any, ...]:
    """The next states of rows (batch, features)."""
    hidden = states[0]
    size = hidden.shape[-1]
    inputs = F.linear(x, layer.weight, layer.bias)
    if layer.kind == "RNN":
        total = inputs + F.linear(hidden, layer.recurrent, layer.recurrent_bias)
        return (layer.activations[0](_clipped(total, layer.clip)),)
    if layer.kind == "LSTM":
        return _lstm_step(layer, inputs + F.linear(hidden, layer.recurrent, layer.recurrent_bias), states[1])
    f, g = layer.activations
    own, back = inputs[:, : 2 * size], layer.recurrent_bias
    gates = own + F.linear(hidden, layer.recurrent[: 2 * size], None if back is None else back[: 2 * size])
    gates = f(_clipped(gates, layer.clip))
    update, reset = gates[:, :size], gates[:, size:]
    kernel, offset = layer.recurrent[2 * size :], None if back is None else back[2 * size :]
    inner = (
        reset * F.linear(hidden, kernel, offset) if layer.after else F.linear(reset * hidden, kernel, offset)
    )
    new = g(_clipped(inputs[:, 2 * size :] + inner, layer.clip))
    return ((1 - update) * new + update * hidden,)


def _lstm_step(layer: LayerDirection, gates: Any, cell: Any) -> tuple[Any, ...]:
    f, g, h = layer.activations
    i, o, forget, c = functions.chunk(gates, 4, 1)
    peep = (None,) * 3 if layer.peepholes is None else functions.chunk(layer.peepholes, 3, 0)
    i = i if peep[0] is None else i + peep[0] * cell
    i = f(_clipped(i, layer.clip))
    if layer.coupled:
        forget = 1 - i
    else:
        forget = forget if peep[2] is None else forget + peep[2] * cell
        forget = f(_clipped(forget, layer.clip))
    new = forget * cell + i * g(_clipped(c, layer.clip))
    o = o if peep[1] is None else o + peep[1] * new
    return f(_clipped(o, layer.clip)) * h(new), new
