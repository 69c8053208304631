"""Costs of networks that are known before training, against what is counted and measured."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.errors import ArgumentError, OutOfMemoryError, ShapeError
from dl4all.scheduler.cost.simulation import simulated_device


def test_counts_are_those_of_the_layers() -> None:
    model = dl.nn.Sequential(
        dl.nn.Conv2d(3, 5, 3, padding=1), dl.nn.ReLU(), dl.nn.Flatten(), dl.nn.Linear(245, 2)
    )
    model[3].bias.requires_grad_(False)
    found = dl.search.costs(model, (4, 3, 7, 7), device="cpu")
    assert found["parameters"] == 5 * 3 * 9 + 5 + 245 * 2
    assert found["flops"] == 2 * 4 * (49 * 5 * 27 + 245 * 2)
    step = dl.search.costs(model, (4, 3, 7, 7), device="cpu", training=True)
    assert 2 * found["flops"] < step["flops"] <= 3 * found["flops"]
    assert step["memory"] > found["memory"] > 4 * found["parameters"]
    assert step["milliseconds"] > found["milliseconds"] > 0
    assert dl.search.costs(model) == {"parameters": found["parameters"]}


def test_time_is_that_of_the_device() -> None:
    model = dl.nn.Linear(1000, 1000)
    slow, fast = (simulated_device(gflops=gflops) for gflops in (1.0, 50.0))
    times = [dl.search.costs(model, (100, 1000), device=device)["milliseconds"] for device in (slow, fast)]
    assert times[0] == pytest.approx(200, rel=0.05)
    assert times[0] > 10 * times[1]


@pytest.mark.parametrize(
    "inputs",
    [
        (2, 5),
        [(2, 5)],
        [dl.zeros(2, 5, device="cpu")],
        dl.zeros(2, 5, device="cpu"),
        np.zeros((2, 5), np.float32),
    ],
    ids=["shape", "shapes", "tensors", "tensor", "array"],
)
def test_inputs_are_tensors_or_shapes(inputs: Any) -> None:
    assert dl.search.costs(dl.nn.Linear(5, 3), inputs, device="cpu")["flops"] == 60
    assert dl.search.latency(dl.nn.Linear(5, 3), inputs, device="cpu", calls=1) > 0


def test_inputs_of_several_shapes() -> None:
    bilinear = dl.nn.Bilinear(3, 4, 2)
    assert dl.search.costs(bilinear, [(2, 3), (2, 4)], device="cpu")["flops"] > 0


@pytest.mark.parametrize("inputs", [(), "12", 3, [None], {"x": 1}], ids=str)
def test_other_inputs(inputs: Any) -> None:
    for call in (dl.search.costs, dl.search.latency):
        with pytest.raises(ArgumentError, match="expected tensors or shapes"):
            call(dl.nn.Linear(5, 3), inputs, device="cpu")


def test_networks_that_do_not_fit() -> None:
    with pytest.raises(ShapeError):
        dl.search.costs(dl.nn.Linear(5, 3), (2, 4), device="cpu")
    with pytest.raises(OutOfMemoryError):
        dl.search.costs(dl.nn.Linear(500, 300), (2, 500), device=simulated_device(memory=1000))


def test_latency_leaves_the_mode(device: str) -> None:
    model = dl.nn.Sequential(dl.nn.Linear(5, 3), dl.nn.Dropout()).to(device)
    assert dl.search.latency(model, (2, 5), device=device, calls=3) > 0
    assert model.training
    assert model[1].training
