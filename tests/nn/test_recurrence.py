"""Whole sequences as one node: against single steps, in few dispatches, within what a device can bind."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.nn import recurrence
from dl4all.nn.recurrence import Steps, Weights
from dl4all.ops.rnn import layout
from dl4all.runtime.null.backend import NullBackend
from tests.support.operands import LAYOUTS, NDArray, close, generator, numbers

INPUTS, UNITS, PROJECTED = 3, 5, 2
CASES = [
    ("lstm", (4, 2, 1), False), ("lstm", (3, 2, 2), True), ("lstm", (1,), True), ("projected", (4, 1), False),
    ("projected", (3, 2, 1), True), ("gru", (7, 3), True), ("gru", (1, 1, 1), False), ("tanh", (6, 6), True),
    ("relu", (5, 2), False),
]  # fmt: skip


def operands(kind: str, batch: int, rows: int, *, bias: bool) -> list[NDArray | None]:
    """The input, the states and the weights, of either function of the module."""
    cell = layout.CELLS["lstm" if kind == "projected" else kind]
    outputs, gates = PROJECTED if kind == "projected" else UNITS, cell.gates * UNITS
    shapes: list[tuple[int, ...] | None] = [(rows, INPUTS), (batch, outputs)]
    if cell.has_cell:
        shapes.append((batch, UNITS))
    biases = [(gates,), (gates,)] if bias else [None, None]
    shapes += [(gates, INPUTS), (gates, outputs), *biases, (outputs, UNITS) if kind == "projected" else None]
    rng = generator(kind, batch, rows)
    return [None if shape is None else numbers(rng, shape) * np.float32(0.4) for shape in shapes]


def differentiate(
    function: Any, given: list[NDArray | None], how: Steps, place: Any, layout_name: str
) -> Any:
    """Results and gradients of all operands; in float64 if `place` is None."""
    make = LAYOUTS[layout_name]
    tensors: list[Any] = [
        None
        if a is None
        else (
            dl.tensor(a.astype(np.float64), device="cpu") if place is None else make(a, place)[0]
        ).requires_grad_()
        for a in given
    ]
    count = len(tensors) - len(Weights._fields)
    y, last = function(tensors[0], tuple(tensors[1:count]), Weights(*tensors[count:]), how)
    results = [y, *last]
    seeds = [numbers(generator("seed", i), t.shape, t.dtype) for i, t in enumerate(results)]
    dl.autograd.backward(results, [dl.tensor(s, device=y.device) for s in seeds])
    found = [*(t.detach() for t in results), *(t.grad for t in tensors if t is not None)]
    return [t.numpy().astype(np.float64) for t in found]


@pytest.mark.parametrize("layout_name", ["contiguous", "transposed", "strided"])
@pytest.mark.parametrize(("kind", "sizes", "reverse"), CASES)
def test_a_sequence_is_its_steps(
    kind: str, sizes: tuple[int, ...], reverse: bool, layout_name: str, device: str
) -> None:
    """Outputs, last states and all gradients, those of steps in float64."""
    how = Steps("lstm" if kind == "projected" else kind, sizes, reverse)
    given = operands(kind, sizes[0], sum(sizes), bias=kind != "relu")
    expected = differentiate(recurrence.by_steps, given, how, None, "contiguous")
    got = differentiate(recurrence.run, given, how, device, layout_name)
    for mine, other in zip(got, expected, strict=True):
        close(mine, other, 3e-5)


@pytest.mark.parametrize("given", [(0,), (1,), (2,), (1, 2)])
def test_gradients_of_some_results(given: tuple[int, ...], device: str) -> None:
    """Of the outputs, the last hidden state and the last cell state, the others got none."""
    arrays = operands("lstm", 3, 5, bias=True)
    how = Steps("lstm", (3, 2), False)
    found = []
    for function, place, dtype in (
        (recurrence.run, device, "float32"),
        (recurrence.by_steps, "cpu", "float64"),
    ):
        tensors = [None if a is None else dl.tensor(a, dtype, device=place).requires_grad_() for a in arrays]
        y, last = function(tensors[0], tuple(tensors[1:3]), Weights(*tensors[3:]), how)  # type: ignore[arg-type]
        results = [(y, *last)[i] for i in given]
        seeds = [
            dl.tensor(numbers(generator(i), r.shape), dtype, device=place) for i, r in enumerate(results)
        ]
        dl.autograd.backward(results, seeds)
        found.append([t.grad.numpy().astype(np.float64) for t in tensors if t is not None])
    for mine, other in zip(*found, strict=True):
        close(mine, other, 3e-5)


def test_second_derivatives_call_hooks_once() -> None:
    layer = dl.nn.GRU(2, 3)
    x = dl.tensor(numbers(generator("hooks"), (2, 1, 2)), device="cpu").requires_grad_()
    calls: list[Any] = []
    hidden = x * 2
    hidden.register_hook(calls.append)
    layer(hidden)[0].sum().backward(create_graph=True)
    assert len(calls) == 1
    assert x.grad is not None
    assert x.grad.requires_grad


def training_dispatches(steps: int, name: str, **options: Any) -> int:
    backend = NullBackend()
    place = dl.Device.of_backend("null:0", backend)
    layer = getattr(dl.nn, name)(4, 8, **options).to(place)
    x = dl.zeros(steps, 6, 4, device=place)
    layer(x)[0].sum().backward()
    before = backend.counts["dispatch"]
    layer.zero_grad()
    layer(x)[0].sum().backward()
    assert backend.counts["download"] == 0
    return backend.counts["dispatch"] - before


@pytest.mark.parametrize("name", ["LSTM", "GRU", "RNN"])
def test_a_time_step_takes_four_dispatches(name: str) -> None:
    """A product and a kernel forward, and the same backward; and both of them for each direction."""
    assert training_dispatches(12, name) - training_dispatches(2, name) == 4 * 10
    both = [training_dispatches(steps, name, bidirectional=True) for steps in (2, 12)]
    assert both[1] - both[0] == 2 * 4 * 10


def test_a_sequence_that_no_dispatch_can_take_goes_step_by_step() -> None:
    """What is kept of it is more than the least device binds at once, but each part of it is not."""
    backend = NullBackend()
    place = dl.Device.of_backend("null:0", backend)
    layer = dl.nn.LSTM(1, 256).to(place)
    layer(dl.zeros(2, 2**13, 1, device=place))[0].sum().backward()
    assert backend.counts["download"] == 0


def test_without_gradients_only_outputs_and_states_are_kept() -> None:
    layer = dl.nn.LSTM(4, 8)
    x = dl.tensor(numbers(generator("kept"), (10, 3, 4)), device="cpu")
    with dl.no_grad():
        outputs = layer(x)[0]
    assert outputs.storage.nbytes == 4 * (10 * 3 * 8 + 2 * 3 * 8)
    assert layer(x)[0].storage.nbytes > 6 * outputs.storage.nbytes
