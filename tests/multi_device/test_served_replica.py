"""The copy of a model that an inference queue computes with."""

from __future__ import annotations

from typing import Any

import numpy as np

import dl4all as dl
from dl4all.multi_device.served_replica import ServedReplica, copy_to


class Tied(dl.nn.Module):
    """One parameter and one layer under two names each, a buffer, and things that are neither."""

    scale: dl.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.first = dl.nn.Linear(3, 3).to("cpu")
        self.second = self.first
        self.weight = self.first.weight
        self.register_buffer("scale", dl.tensor([1.0, 2.0, 3.0], device="cpu"))
        self.kept = {"calls": 0}
        self.constant = dl.tensor([5.0], device="cpu")

    def forward(self, x: Any) -> Any:
        self.kept["calls"] += 1
        return self.second(self.first(x)) @ self.weight * self.scale


def test_a_copy_has_the_structure_of_its_model(device: str) -> None:
    model = Tied()
    model.first.weight.grad = dl.ones(3, 3, device="cpu")
    hooked: list[int] = []
    model.register_forward_hook(lambda *_: hooked.append(1))
    made = copy_to(model, dl.device(device))
    assert made.first is made.second
    assert made.first is not model.first
    assert made.weight is made.first.weight
    assert [p.device for p in made.parameters()] == [dl.device(device)] * 2
    assert not any(p.requires_grad or p.grad is not None for p in made.parameters())
    assert made.scale.device == dl.device(device)
    assert made.constant is model.constant
    assert list(made.state_dict()) == list(model.state_dict())
    x = dl.randn(2, 3, device="cpu")
    expected = model(x)
    np.testing.assert_allclose(made(x.to(device)).numpy(), expected.numpy(), rtol=1e-5, atol=1e-6)
    assert len(hooked) == 2
    assert (model.kept, made.kept) == ({"calls": 1}, {"calls": 1})


def test_a_copy_has_memory_of_its_own(device: str) -> None:
    model = Tied().to(device)
    made = copy_to(model, dl.device(device))
    before = made.weight.tolist(), made.scale.tolist()
    dl.nn.init.zeros_(model.first.weight)
    model.scale.zero_()
    assert (made.weight.tolist(), made.scale.tolist()) == before
    assert made.training
    made.eval()
    assert model.first.training


def test_speeds_are_those_of_late() -> None:
    replica = ServedReplica(Tied(), dl.device("cpu"), 4)
    assert replica.seconds_per_request == 0.0
    replica.took(4.0, 2)
    assert replica.seconds_per_request == 2.0
    replica.took(1.0, 1)
    assert (replica.seconds_per_request, replica.requests) == (1.5, 3)
