"""Copies of a model's structure on another device."""

from __future__ import annotations

from typing import Any

import numpy as np

import dl4all as dl
from dl4all import nn
from dl4all.multi_device.replica import duplicated, structure_copy
from dl4all.scheduler.cost.simulation import simulated_device


class Net(nn.Module):
    """Modules and tensors in all the places where attributes have them."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(2, 2)
        self.again = self.first
        self.last = nn.Linear(2, 2)
        self.last.weight = self.first.weight
        self.last.weight.requires_grad_(False)
        self.register_buffer("count", dl.ones(3, dtype="int64", device="cpu"))
        self.listed: list[Any] = [nn.Linear(2, 1), (dl.ones(2, device="cpu"), "x")]
        self.named = {"a": self.first}


def test_what_is_shared_stays_shared_and_nothing_is_the_models() -> None:
    net, device = Net(), simulated_device(computes=False)
    made = structure_copy(net, device)
    assert isinstance(made, Net)
    assert made.again is made.first is made.named["a"] is not net.first
    assert made.last.weight is made.first.weight is not net.first.weight
    assert not made.last.weight.requires_grad
    assert made.first.bias is not None
    assert made.first.bias.requires_grad
    layer, (tensor, text) = made.listed
    assert layer is not net.listed[0]
    assert (tensor.device, text) == (device, "x")
    old, new = net.state_dict(), made.state_dict()
    assert [(name, t.shape, t.dtype) for name, t in old.items()] == [
        (name, t.shape, t.dtype) for name, t in new.items()
    ]
    assert all(t.device is device and isinstance(t, type(old[name])) for name, t in new.items())
    assert all(t.device is dl.device("cpu") for t in old.values())


def test_changes_of_the_copy_are_not_the_models() -> None:
    net = Net()
    hook = net.register_forward_hook(lambda module, inputs, output: output)
    made = structure_copy(net, simulated_device(computes=False)).eval()
    made.register_buffer("more", dl.ones(1, device="cpu"))
    made.register_forward_pre_hook(lambda module, inputs: None)
    assert net.training
    assert "more" not in net._kinds
    assert (len(net._forward_pre_hooks), len(made._forward_hooks)) == (0, 1)
    hook()
    assert len(made._forward_hooks) == 1


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
    made = structure_copy(model, dl.device(device), duplicated)
    assert made.first is made.second
    assert made.first is not model.first
    assert made.weight is made.first.weight
    assert [p.device for p in made.parameters()] == [dl.device(device)] * 2
    assert all(p.requires_grad and p.grad is None for p in made.parameters())
    assert made.scale.device == dl.device(device)
    assert (made.constant.device, made.constant.tolist()) == (dl.device(device), [5.0])
    assert list(made.state_dict()) == list(model.state_dict())
    x = dl.randn(2, 3, device="cpu")
    expected = model(x)
    np.testing.assert_allclose(made(x.to(device)).numpy(), expected.numpy(), rtol=1e-5, atol=1e-6)
    assert len(hooked) == 2
    assert (model.kept, made.kept) == ({"calls": 1}, {"calls": 1})


def test_a_copy_has_memory_of_its_own(device: str) -> None:
    model = Tied().to(device)
    made = structure_copy(model, dl.device(device), duplicated)
    before = made.weight.tolist(), made.scale.tolist()
    dl.nn.init.zeros_(model.first.weight)
    model.scale.zero_()
    assert (made.weight.tolist(), made.scale.tolist()) == before
    assert made.training
    made.eval()
    assert model.first.training
