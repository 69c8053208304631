"""What ``dl.autograd.checkpoint`` saves: the peak of a deep network's activations."""

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
