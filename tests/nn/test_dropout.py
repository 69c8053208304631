"""Dropout: what is kept, that the gradient has the same mask, and that it is the same when run again."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.errors import ArgumentError, DTypeError
from dl4all.nn import functional as F

N = 100_000


def test_shares_and_values(device: str) -> None:
    dl.manual_seed(1)
    for p in (0.1, 0.5, 0.9):
        y = F.dropout(dl.ones(N, device=device), p).numpy()
        assert set(y) == {0, np.float32(1 / (1 - p))}
        assert abs((y == 0).mean() - p) < 5 * math.sqrt(p * (1 - p) / N)


def test_seeds_and_devices(device: str) -> None:
    x = np.random.default_rng(0).standard_normal((131, 7)).astype(np.float32)
    dl.manual_seed(2)
    first, second = (F.dropout(dl.tensor(x, device=device), 0.4).numpy() for _ in range(2))
    dl.manual_seed(2)
    np.testing.assert_array_equal(F.dropout(dl.tensor(x, device="cpu"), 0.4).numpy(), first)
    assert not np.array_equal(first, second)


def test_extremes(device: str) -> None:
    x = dl.tensor([1.0, -2.0, math.inf], device=device)
    state = dl.get_rng_state()
    assert F.dropout(x, 0.0) is x
    assert F.dropout(x, 0.9, training=False) is x
    assert dl.get_rng_state() == state
    assert F.dropout(x[:2], 1.0).tolist() == [0, 0]
    assert F.dropout(dl.zeros(0, 3, device=device)).shape == (0, 3)
    assert F.dropout(dl.tensor(3.0, device=device), 0.5).item() in (0, 6)


def test_the_gradient_has_the_same_mask(device: str) -> None:
    x = dl.ones(1031, device=device).requires_grad_()
    y = F.dropout(x, 0.3)
    weight = np.arange(1031, dtype=np.float32)
    y.backward(dl.tensor(weight, device=device))
    np.testing.assert_array_equal(x.grad.numpy(), y.detach().numpy() * weight)


@pytest.mark.parametrize(
    "shape", [(4, 8, 5, 7), (4, 8, 9), (4, 8), (2, 3, 4, 5, 6), (4, 0, 5, 7), (4, 8, 0, 7)]
)
def test_channels(shape: tuple[int, ...], device: str) -> None:
    """All elements of a channel share their fate; with three axes there is no batch."""
    dl.manual_seed(3)
    x = dl.ones(*shape, device=device).requires_grad_()
    y = F.dropout2d(x, 0.5)
    y.backward(dl.ones(*shape, device=device))
    np.testing.assert_array_equal(x.grad.numpy(), y.detach().numpy())
    axes = 1 if len(shape) == 3 else 2
    channels = y.detach().numpy().reshape(math.prod(shape[:axes]), math.prod(shape[axes:]))
    assert (channels == channels[:, :1]).all()
    if channels.size > 20:
        assert set(channels[:, 0]) == {0, 2}
    dl.manual_seed(3)
    np.testing.assert_array_equal(F.dropout2d(dl.ones(*shape, device="cpu"), 0.5).numpy(), y.detach().numpy())


def test_channels_are_drawn_evenly(device: str) -> None:
    y = F.dropout2d(dl.ones(100, 100, 2, 2, device=device), 0.2).numpy()
    assert abs((y[:, :, 0, 0] == 0).mean() - 0.2) < 5 * math.sqrt(0.2 * 0.8 / 10_000)


@pytest.mark.parametrize("dropout", [F.dropout, F.dropout2d])
def test_checkpoints_draw_the_same_again(dropout: Any, device: str) -> None:
    """The mask of the second run is that of the first, though others have drawn in between."""
    w = np.random.default_rng(0).standard_normal((7, 11)).astype(np.float32)

    def part(x: dl.Tensor) -> Any:
        first = dropout(x * x, 0.5)
        return dropout(first * x, 0.3) * first

    grads = []
    for run in (part, lambda x: dl.autograd.checkpoint(part, x)):
        dl.manual_seed(4)
        x = dl.tensor(w, device=device).requires_grad_()
        y = run(x)
        dl.rand(1000, device="cpu")
        state = dl.get_rng_state()
        y.backward(dl.ones(7, 11, device=device))
        assert dl.get_rng_state() == state  # the second run takes no new numbers
        grads.append((y.detach().numpy(), x.grad.numpy()))
    for one, other in zip(*grads, strict=True):
        np.testing.assert_array_equal(one, other)


def test_layers(device: str) -> None:
    net = dl.nn.Sequential(dl.nn.Dropout(0.5), dl.nn.Dropout2d(0.25))
    x = dl.ones(8, 16, 3, 3, device=device)
    assert net.eval()(x) is x
    assert set(net.train()(x).numpy().reshape(-1)) == {0, np.float32(2) * np.float32(4 / 3)}
    assert repr(net[0]) == "Dropout(p=0.5, inplace=False)"
    assert repr(net[1]) == "Dropout2d(p=0.25, inplace=False)"
    assert net.state_dict() == {}


def test_refusals() -> None:
    x = dl.ones(3, device="cpu")
    for call in (F.dropout, F.dropout2d):
        with pytest.raises(ArgumentError, match=r"a probability from 0 to 1, got 1\.5"):
            call(x.reshape(3, 1), 1.5)
    with pytest.raises(ArgumentError, match=r"\[Dropout2d\] expected a probability from 0 to 1, got -1"):
        dl.nn.Dropout2d(-1)
    with pytest.raises(ArgumentError, match=r"\[dropout2d\] expected shape \(N, C, ...\), got \(3,\)"):
        F.dropout2d(x)
    with pytest.raises(DTypeError, match="int64"):
        F.dropout(dl.tensor([1, 2], device="cpu"))
