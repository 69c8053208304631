"""Copies of a model's structure on another device."""

from __future__ import annotations

from typing import Any

import dl4all as dl
from dl4all import nn
from dl4all.multi_device.structure_copy import structure_copy
from dl4all.scheduler.simulation import simulated_device


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
    assert "more" not in net._buffer_names
    assert (len(net._pre_hooks), len(made._hooks)) == (0, 1)
    hook()
    assert len(made._hooks) == 1
