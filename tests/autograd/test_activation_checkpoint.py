"""Memory that ``dl.autograd.checkpoint`` saves, uncompiled and compiled."""

from __future__ import annotations

import gc
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all import nn
from tests.conftest import need

LAYERS, SEGMENTS = 50, 7  # about the square root of it
WIDTH, BATCH = 8, 512  # an activation has 57 times the bytes of a layer's weights
BLOCKS = 6


@pytest.fixture
def poisoned() -> None:
    """Instead of the one that fills memory: what is allocated is counted here."""


@pytest.fixture(autouse=True)
def no_collector() -> Iterator[None]:
    """Memory must come back without it: it may not run for long."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def network(activation: type[nn.Module], place: dl.Device) -> list[nn.Module]:
    dl.manual_seed(0)
    return [nn.Sequential(nn.Linear(WIDTH, WIDTH), activation()).to(place) for _ in range(LAYERS)]


def peak_of_a_step(layers: list[nn.Module], x: dl.Tensor, segments: int) -> tuple[int, list[bytes]]:
    """The most bytes beyond those held before the step, and the gradients."""
    dl.memory.reset_peak(x.device)
    before = dl.memory.stats(x.device).allocated
    y: Any = x
    size = math.ceil(LAYERS / segments)
    for start in range(0, LAYERS, size):
        run = nn.Sequential(*layers[start : start + size])
        y = run(y) if segments == 1 else dl.autograd.checkpoint(run, y)
    (y * y).sum().backward()
    peak = dl.memory.stats(x.device).peak - before
    gradients = []
    for layer in layers:
        for parameter in layer.parameters():
            gradients.append(parameter.grad.numpy().tobytes())
            parameter.grad = None
    return peak, gradients


@pytest.mark.parametrize(
    ("name", "activation"),
    [
        ("cpu", nn.ReLU),  # keeps its result for the gradient
        ("cpu", nn.GELU),  # keeps its operand, so that there are two activations for each layer
        pytest.param("vulkan:0", nn.ReLU, marks=pytest.mark.vulkan),
        pytest.param("vulkan:0", nn.GELU, marks=pytest.mark.vulkan),
        # builds a pipeline for each set of buffers
        pytest.param("kompute:0", nn.ReLU, marks=[pytest.mark.vulkan, pytest.mark.slow]),
    ],
)
def test_a_deep_network_in_segments(name: str, activation: type[nn.Module]) -> None:
    need(name)
    place = dl.device("cpu") if name == "cpu" else dl.Device.of_backend(name, dl.device(name)._backend)
    layers = network(activation, place)
    rows = np.random.default_rng(0).standard_normal((BATCH, WIDTH)).astype(np.float32)
    x = dl.tensor(rows, device=place)
    whole, expected = peak_of_a_step(layers, x, 1)
    least, found = peak_of_a_step(layers, x, SEGMENTS)
    assert found == expected
    assert any(np.frombuffer(array, np.float32).any() for array in expected[:2])  # or nothing came back
    assert whole >= LAYERS * x.numel() * 4  # every layer's result, at least
    assert whole >= 3 * least, f"{whole / least:.2f} times"


class Blocks(nn.Module):
    """Blocks with dropout, each of which may be a segment."""

    def __init__(self, again: bool) -> None:
        super().__init__()
        self.again = again
        self.blocks = nn.ModuleList(
            [
                nn.Sequential(
                    nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Dropout(0.3), nn.Linear(4 * WIDTH, WIDTH)
                )
                for _ in range(BLOCKS)
            ]
        )

    def forward(self, x: dl.Tensor) -> dl.Tensor:
        for block in self.blocks:
            x = x + (dl.autograd.checkpoint(block, x) if self.again else block(x))
        return x


def compiled_steps(again: bool, device: str, compiled: bool = True) -> tuple[list[float], int]:
    """The losses of five steps, and the bytes of the last one beside parameters and their means."""
    dl.manual_seed(3)
    network = Blocks(again).to(device)
    optimizer = dl.optim.SGD(network.parameters(), lr=0.05)
    x = dl.tensor(np.random.default_rng(1).standard_normal((BATCH, WIDTH)).astype(np.float32), device=device)
    before = dl.memory.stats(device).allocated

    def step(x: dl.Tensor) -> dl.Tensor:
        loss: dl.Tensor = network(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    run = dl.compile(step) if compiled else step
    dl.manual_seed(4)
    losses = [run(x).item() for _ in range(4)]
    dl.memory.reset_peak(device)
    losses.append(run(x).item())
    return losses, dl.memory.stats(device).peak - before


@pytest.mark.parametrize("name", ["cpu", pytest.param("vulkan:0", marks=pytest.mark.vulkan)])
def test_compiled_steps_with_segments(name: str) -> None:
    """Each replay draws random numbers, the same ones both times; what is computed again is not kept."""
    need(name)
    expected, _ = compiled_steps(False, name, compiled=False)
    whole, most = compiled_steps(False, name)
    found, least = compiled_steps(True, name)
    _, uncompiled = compiled_steps(True, name, compiled=False)
    np.testing.assert_allclose(whole, expected, rtol=1e-5)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert len(set(expected)) == len(expected)
    assert most >= BLOCKS * BATCH * 4 * WIDTH * 4
    assert least < 0.5 * most
    assert least < 1.2 * uncompiled


def test_a_function_that_draws_more_the_second_time() -> None:
    calls: list[int] = []

    def function(x: dl.Tensor) -> dl.Tensor:
        calls.append(1)
        for _ in calls:
            x = nn.functional.dropout(x, 0.5)
        return x * x

    x = dl.rand(5, device="cpu").requires_grad_()
    y: Any = dl.autograd.checkpoint(function, x)
    with pytest.raises(dl.errors.GradientError, match="did not do the same when it ran a second time"):
        y.sum().backward()
