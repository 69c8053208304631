"""Recurrent layers over a sequence in one direction: as one node of the graph, or step by step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

from dl4all import ops
from dl4all.autograd.backward_pass import grad
from dl4all.nn import functional
from dl4all.ops.core import autocast, tape
from dl4all.ops.core.arguments.tensor_like import TensorLike
from dl4all.ops.core.tensor_base import TensorBase
from dl4all.ops.core.vmap_hook import BatchedTensorBase
from dl4all.ops.memory.copy import fill_with, fresh_copy, new_like
from dl4all.ops.memory.views import contiguous
from dl4all.ops.rnn import layout
from dl4all.ops.rnn.lstm import lstm_states
from dl4all.tensor.tensor import Tensor

States: TypeAlias = tuple[Tensor, ...]
"""The hidden state, and for an LSTM the cell state."""


class Weights(NamedTuple):
    """The parameters of one layer in one direction."""

    weight_ih: Tensor
    weight_hh: Tensor
    bias_ih: Tensor | None
    bias_hh: Tensor | None
    weight_hr: Tensor | None = None


class Steps(NamedTuple):
    """The order of the rows of a sequence."""

    mode: str  # a key of layout.CELLS
    sizes: tuple[int, ...]  # how many rows each time step has
    reverse: bool


def run(x: Tensor, states: States, weights: Weights, how: Steps) -> tuple[Tensor, States]:
    """Run a layer over packed rows (rows, features); returns the outputs and the last states."""
    inputs: Sequence[Any] = (x, *states, *weights)
    if autocast.blocks:
        inputs, _ = autocast.cast_operands(how.mode, "lower", inputs, {})
        first = 1 + len(states)
        x, states, weights = inputs[0], tuple(inputs[1:first]), Weights(*inputs[first:])
    if any(isinstance(weight, TensorLike) for weight in weights):
        return _run_held(x, states, weights, how)
    if any(isinstance(t, BatchedTensorBase) for t in inputs) or not fits(x, weights, how):
        return by_steps(x, states, weights, how)
    saves = tape.state.enabled and any(map(tape.wants_gradient, inputs))
    result, outputs = sequence(x, states, weights, how, save=saves)
    count = len(states)

    def backward(grads: Any, saved: Any, needs: Any) -> Any:
        *kept, flat = saved
        parts = kept[0], tuple(kept[1 : 1 + count]), Weights(*kept[1 + count :])
        if tape.state.enabled:
            return _gradients_by_steps(grads, *parts, how, needs)
        return gradients(grads, *parts, how, flat, needs)

    tape.add_node(f"{how.mode}_sequence", inputs, outputs, backward, (*inputs, result))
    y, *last = outputs
    return y, tuple(last)  # type: ignore[return-value,arg-type]


def _run_held(x: Tensor, states: States, weights: Weights, how: Steps) -> tuple[Tensor, States]:
    """Run a layer whose weights are held in few bits: of the input as its product has them, of the hidden
    state in floats, as states are many and their rows few. Gradients flow step by step."""

    def in_floats(weight: Any) -> Any:
        held = isinstance(weight, TensorLike)
        return ops.cast(weight.dequantized(), x.dtype.name) if held else weight

    weights = Weights(weights.weight_ih, *map(in_floats, weights[1:]))
    biases = (weights.bias_ih, weights.bias_hh)
    batched = any(isinstance(t, BatchedTensorBase) for t in (x, *states))
    records = tape.state.enabled and any(map(tape.wants_gradient, (x, *states, *biases)))
    if batched or records or not fits(x, weights, how):
        return by_steps(x, states, weights, how)
    _, outputs = sequence(x, states, weights, how, save=False)
    y, *last = outputs
    return y, tuple(last)  # type: ignore[return-value,arg-type]


def run_cell(x: Tensor, states: States, weights: Weights, mode: str) -> States:
    """One time step, of rows (rows, features); returns the next states.

    On the host it is a sequence of one step, which takes the fewest ops: starting them is most of the time.
    """
    if x.device.is_host:
        y, last = run(x, states, weights, Steps(mode, (x.shape[0],), reverse=False))
        return (y, *last[1:])
    gates_x = functional.linear(x, weights.weight_ih, weights.bias_ih)
    return step(gates_x, states, weights, mode)


def sequence(
    x: Tensor, states: States, weights: Weights, how: Steps, *, save: bool
) -> tuple[TensorBase, list[TensorBase]]:
    """A layer over packed rows without a history, by one op.

    Returns:
        The op's result, which :func:`gradients` takes if it was to `save`, and views of its parts: outputs
        and last states.
    """
    with tape.gradients(False):
        apart = layout.CELLS[how.mode].separate or x.device.is_host
        bias = weights.bias_ih if apart else _common_bias(weights)
        gates_x = functional.linear(x, weights.weight_ih, bias)
        result = ops.recurrent_sequence(
            gates_x,
            states[0],
            weights.weight_hh,
            states[1] if len(states) > 1 else None,
            weights.bias_hh if apart else None,
            weights.weight_hr,
            **how._asdict(),
            save=save,
        )
    regions = layout.result_regions(_problem(weights, how), save=save)
    names = ("outputs", "hidden", "cell")[: 1 + len(states)]
    return result, [tape.alias(regions[name].of(result)) for name in names]


def _problem(weights: Weights, how: Steps) -> layout.SequenceProblem:
    return layout.check_problem("recurrent", weights.weight_hh, weights.weight_hr, how.mode, how.sizes)


def fits(x: Tensor, weights: Weights, how: Steps) -> bool:
    """Whether a kernel of the device can take all that is kept of the sequence at once."""
    problem, limit = _problem(weights, how), x.device.info.limits.storage_buffer_range
    needed = max(
        layout.length(layout.result_regions(problem, save=True)),
        layout.length(layout.gradient_regions(problem)),
    )
    return x.device.is_host or needed * x.dtype.itemsize <= limit


def _common_bias(weights: Weights) -> Tensor | None:
    """The bias that is added to the sums of both terms of the gates."""
    if weights.bias_ih is None or weights.bias_hh is None:
        return weights.bias_ih
    return weights.bias_ih + weights.bias_hh


def gradients(
    grads: Sequence[Any],
    x: Tensor,
    states: States,
    weights: Weights,
    how: Steps,
    result: Any,
    needs: Sequence[bool],
) -> list[Any]:
    """The gradients of all inputs that need one: each weight's is one product over all time steps.

    Args:
        grads: those of the outputs and of the last states; None for zeros.
        result: see :func:`sequence`.
        needs: which inputs need one, of `x`, the states and the weights.
    """
    problem = _problem(weights, how)
    kept = {name: r.of(result) for name, r in layout.result_regions(problem, save=True).items()}
    grad_outputs = grads[0]
    if grad_outputs is None:
        grad_outputs = new_like(next(g for g in grads if g is not None), kept["outputs"].shape)
        fill_with(grad_outputs, 0)
    # A sum's gradient repeats one element, and that of batches that come first lies across.
    given: list[Any] = [
        None if g is None else contiguous(g) for g in (grad_outputs, *grads[1 : 1 + len(states)])
    ]
    flat = ops.recurrent_sequence_backward(
        given[0], result, weights.weight_hh, given[1], given[2] if len(states) > 1 else None,
        weights.weight_hr, **how._asdict(),
    )  # fmt: skip
    found = {name: r.of(flat) for name, r in layout.gradient_regions(problem).items()}
    gates = found["gates"]
    gates_h = found.get("gates_h", gates)
    needed = dict(zip(("x", *("hidden", "cell")[: len(states)], *Weights._fields), needs, strict=True))
    named: dict[str, Any] = {}
    if needed["x"]:
        named["x"] = ops.matmul(gates, weights.weight_ih)
    for name in ("hidden", "cell"):
        if needed.get(name):
            alone = problem.rows == problem.batch  # else a copy, so that the rest of the memory goes
            named[name] = found[name] if alone else fresh_copy(found[name])
    if needed["weight_ih"]:
        named["weight_ih"] = ops.matmul(gates.T, x)
    if needed["weight_hh"]:
        named["weight_hh"] = ops.matmul(gates_h.T, kept["before"])
    if needed["bias_ih"] or (needed["bias_hh"] and gates_h is gates):
        named["bias_ih"] = named["bias_hh"] = ops.sum(gates, 0)
    if needed["bias_hh"] and gates_h is not gates:
        named["bias_hh"] = ops.sum(gates_h, 0)
    if needed["weight_hr"]:
        named["weight_hr"] = ops.matmul(found["outputs"].T, kept["units"])
    return [named.get(name) if need else None for name, need in needed.items()]


def _gradients_by_steps(
    grads: Sequence[Any],
    x: Tensor,
    states: States,
    weights: Weights,
    how: Steps,
    needs: Sequence[bool],
) -> list[Any]:
    """The gradients of all inputs, which can be differentiated again."""
    inputs: list[Any] = [None if t is None else _same(t) for t in (x, *states, *weights)]
    count = 1 + len(states)
    y, last = by_steps(inputs[0], tuple(inputs[1:count]), Weights(*inputs[count:]), how)
    given = [(r, g) for r, g in zip((y, *last), grads, strict=True) if g is not None]
    targets = [t for t, need in zip(inputs, needs, strict=True) if need]
    found = iter(
        grad([r for r, _ in given], targets, [g for _, g in given], create_graph=True, allow_unused=True)
    )
    return [next(found) if need else None for need in needs]


def _same(tensor: Any) -> Any:
    """The tensor behind a node of its own, at which a gradient can end without its hooks."""
    copy = tape.alias(tensor)
    tape.add_node("alias", [tensor], [copy], lambda grads, saved, needs: grads)
    return copy


def step(gates_x: Tensor, states: States, weights: Weights, mode: str) -> States:
    """One time step."""
    gates_h = functional.linear(states[0], weights.weight_hh, weights.bias_hh)
    if mode == "lstm":
        h, c = lstm_states(gates_x, gates_h, states[1])
        return (h if weights.weight_hr is None else functional.linear(h, weights.weight_hr)), c
    if mode == "gru":
        return (ops.gru_step(gates_x, gates_h, states[0]),)
    return ((ops.tanh if mode == "tanh" else ops.relu)(gates_x + gates_h),)


def by_steps(x: Tensor, states: States, weights: Weights, how: Steps) -> tuple[Tensor, States]:
    """The results of :func:`run`, by ops for each time step."""
    sizes = how.sizes
    steps = ops.split(functional.linear(x, weights.weight_ih, weights.bias_ih), sizes)
    count = sizes[-1] if how.reverse else sizes[0]
    first, states = states, _rows(states, 0, count)
    finished: list[States] = []
    outputs: list[Tensor] = []
    for gates_x in reversed(steps) if how.reverse else steps:
        size = gates_x.shape[0]
        if size < count:  # some sequences have ended
            finished.append(_rows(states, size, count))
            states = _rows(states, 0, size)
        elif size > count:  # in reverse, some sequences begin
            states = _concatenate([states, _rows(first, count, size)])
        count = size
        states = step(gates_x, states, weights, how.mode)
        outputs.append(states[0])
    y = ops.cat(outputs[::-1] if how.reverse else outputs)
    return y, _concatenate([states, *reversed(finished)])


def _rows(states: States, start: int, end: int) -> States:
    """The states of some of the sequences."""
    return tuple(s if (start, end) == (0, s.shape[0]) else s[start:end] for s in states)


def _concatenate(parts: list[States]) -> States:
    """The states of several groups of sequences as one."""
    return parts[0] if len(parts) == 1 else tuple(ops.cat(kind) for kind in zip(*parts, strict=True))
