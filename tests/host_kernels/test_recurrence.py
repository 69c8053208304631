"""Compiled recurrent layers and steps beside the NumPy bodies and PyTorch."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import numpy as np
import pytest
import torch

import dl4all as dl
from dl4all.host_kernels.rnn import tiles as recurrent_tiles
from dl4all.runtime.cpu.llvm import provider
from tests.support.host_launches import HostLaunches, poison_memory

pytestmark = pytest.mark.skipif(not provider.available(), reason="there is no compiler")

GATES = {"lstm": 4, "gru": 3, "tanh": 1, "relu": 1}
SIZES: list[tuple[int, ...]] = [
    (1,) * 7,  # one row
    (5, 5, 5),
    (53, 53),  # more rows than one block has
    (13, 7, 7, 2, 1),  # sequences that end
    (3, 0, 0),  # and time steps without rows
]
UNITS = [1, 5, 16, 31, 67, 130]
LAYERS: dict[str, Any] = {"lstm": "LSTM", "gru": "GRU", "tanh": "RNN"}

recurrent_sequence: Any = dl.ops.recurrent_sequence
recurrent_sequence_backward: Any = dl.ops.recurrent_sequence_backward


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> HostLaunches:
    return HostLaunches(monkeypatch)


def numbers(*shape: int, seed: int = 6) -> Any:
    rng = np.random.default_rng([seed, *shape])
    return dl.tensor((rng.standard_normal(shape) / 2).astype(np.float32), device="cpu")


def sequence_operands(mode: str, units: int, rows: int, batch: int, *, bias: bool) -> list[Any]:
    gates = GATES[mode]
    return [
        numbers(rows, gates * units),
        numbers(batch, units, seed=1),
        numbers(gates * units, units) / units**0.5,
        numbers(batch, units, seed=2) if mode == "lstm" else None,
        numbers(gates * units) if bias else None,
    ]


@pytest.mark.parametrize("units", UNITS)
@pytest.mark.parametrize("mode", GATES)
def test_sequences(mode: str, units: int, launches: HostLaunches) -> None:
    """Results and gradients are those of the bodies, of every kind of time steps."""
    for number, (sizes, reverse, save) in enumerate(itertools.product(SIZES, (False, True), (True, False))):
        operands = sequence_operands(mode, units, sum(sizes), sizes[0], bias=bool(number % 2))
        how: Any = {"mode": mode, "sizes": sizes, "reverse": reverse}
        poison_memory(4 * sum(sizes) * units * 8)
        found, expected = launches.both(functools.partial(recurrent_sequence, *operands, **how, save=save))
        np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-6)
        if not save:
            continue
        result, weight = dl.tensor(expected, device="cpu"), operands[2]
        last = numbers(sizes[0], units, seed=3)
        given: list[Any] = [numbers(sum(sizes), units, seed=4), result, weight]
        given += [last, numbers(sizes[0], units, seed=5) if mode == "lstm" else None] if number % 3 else []
        found, expected = launches.both(functools.partial(recurrent_sequence_backward, *given, **how))
        np.testing.assert_allclose(found, expected, rtol=2e-5, atol=1e-5)


@pytest.mark.parametrize("size", [3, 48, 70])
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("mode", LAYERS)
def test_layers_beside_pytorch(mode: str, bidirectional: bool, size: int, launches: HostLaunches) -> None:
    torch.manual_seed(3)
    options: Any = {"num_layers": 2, "bidirectional": bidirectional, "batch_first": True}
    theirs = getattr(torch.nn, LAYERS[mode])(11, size, **options)
    mine = getattr(dl.nn, LAYERS[mode])(11, size, **options).to("cpu")
    mine.load_state_dict({name: p.detach().numpy() for name, p in theirs.state_dict().items()})
    array = numbers(7, 13, 11).numpy()
    x, other = dl.tensor(array, device="cpu").requires_grad_(), torch.tensor(array, requires_grad=True)
    before = launches.count
    y, _ = mine(x)
    (y * y).sum().backward()
    assert launches.count - before >= 2 * 2 * (1 + bidirectional)
    expected, _ = theirs(other)
    (expected * expected).sum().backward()
    np.testing.assert_allclose(y.detach().numpy(), expected.detach().numpy(), rtol=1e-4, atol=1e-5)
    assert x.grad is not None
    assert other.grad is not None
    np.testing.assert_allclose(x.grad.numpy(), other.grad.numpy(), rtol=1e-3, atol=1e-4)
    for p, q in zip(mine.parameters(), theirs.parameters(), strict=True):
        np.testing.assert_allclose(p.grad.numpy(), q.grad.numpy(), rtol=1e-3, atol=3e-4)


@pytest.mark.parametrize("mode", GATES)
def test_special_numbers_stay_in_their_rows(mode: str, launches: HostLaunches) -> None:
    """A row with infinities and nan does not touch others, also where units do not fill a vector."""
    operands = sequence_operands(mode, 19, 21, 7, bias=False)
    array = operands[0].numpy().copy()
    array[2], array[3, 5], array[4, 1], array[5] = np.nan, np.inf, -np.inf, 1e30
    operands[0] = dl.tensor(array, device="cpu")
    found, expected = launches.both(
        lambda: recurrent_sequence(*operands, mode=mode, sizes=(7, 7, 7), save=False)
    )
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-6)


def test_a_projection_and_other_dtypes_are_left_to_numpy(launches: HostLaunches) -> None:
    layer = dl.nn.LSTM(5, 7, proj_size=3).to("cpu")
    wide = dl.nn.GRU(5, 7).to("cpu").double()
    for made, dtype in ((layer, "float32"), (wide, "float64")):
        y, _ = made(numbers(4, 2, 5).to(dtype).requires_grad_())
        y.sum().backward()
        assert np.isfinite(y.detach().numpy()).all()


@pytest.mark.parametrize("rows", [1, 2, 67])
@pytest.mark.parametrize("size", [1, 7, 16, 129])
def test_steps(rows: int, size: int, launches: HostLaunches) -> None:
    x, h = numbers(rows, 4 * size), numbers(rows, 4 * size, seed=1)
    cell, grads = numbers(rows, size, seed=2), numbers(2, rows, size)
    x3, h3 = numbers(rows, 3 * size), numbers(rows, 3 * size, seed=3)
    calls: list[Any] = [
        lambda: dl.ops.lstm_step(x, h, cell),
        lambda: dl.ops.lstm_step_backward(grads, x, cell),
        lambda: dl.ops.gru_step(x3, h3, cell),
        lambda: dl.ops.gru_step_backward(grads[0].contiguous(), x3, h3, cell),
    ]
    for call in calls:
        poison_memory(4 * 7 * rows * size)
        found, expected = launches.both(call)
        np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-6)


def test_panels_fill_their_vectors() -> None:
    lanes = provider.processor().lanes()
    assert recurrent_tiles.panel_vectors(4, 1000) == recurrent_tiles.panel_vectors(3, 1000) == 1
    assert recurrent_tiles.panel_vectors(1, 4 * lanes) == 4
    assert recurrent_tiles.panel_vectors(1, 2 * lanes) == 2
    assert recurrent_tiles.panel_vectors(1, 1) == 1
