"""Snapshots of models: every change of what a step depends on is seen, and a step itself is none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import dl4all as dl
from dl4all.multi_device.replica import Replica
from dl4all.multi_device.snapshot import Snapshot


class Net(dl.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = dl.nn.Sequential(dl.nn.Linear(3, 3), dl.nn.BatchNorm1d(3))
        self.table: dict[str, Any] = {"scale": [1.0, 2.0]}
        self.more = [dl.nn.Linear(3, 2)]
        self.last: Any = None

    def forward(self, x: Any) -> Any:
        return self.more[0](self.layers(x)) * self.table["scale"][0]


def replace_memory(net: Net) -> None:
    weight = net.layers[0].weight
    weight.data = dl.rand(3, 3)


def rename(net: Net) -> None:
    net.table["factor"] = net.table.pop("scale")


CHANGES: dict[str, Callable[[Net], Any]] = {
    "a mode": lambda net: net.layers[1].eval(),
    "an attribute": lambda net: setattr(net, "last", 1),
    "a new attribute": lambda net: setattr(net, "other", 1),
    "an attribute less": lambda net: delattr(net, "last"),
    "an element of a nested list": lambda net: net.table["scale"].append(3.0),
    "another element of a nested list": lambda net: net.table["scale"].__setitem__(0, 4.0),
    "a key": rename,
    "a module in a list": lambda net: net.more.__setitem__(0, dl.nn.Linear(3, 2)),
    "a module below one in a list": lambda net: setattr(net.more[0], "bias", None),
    "a module": lambda net: setattr(net, "layers", dl.nn.Linear(3, 3)),
    "a buffer's name": lambda net: net.layers[1].register_buffer("more", dl.ones(2)),
    "memory": replace_memory,
    "gradients": lambda net: net.layers[0].weight.requires_grad_(False),
    "a dtype": lambda net: net.double(),
    "a hook": lambda net: net.layers.register_forward_hook(lambda *_: None),
}


@pytest.mark.parametrize("change", CHANGES)
def test_changes_are_seen(change: str) -> None:
    net = Net()
    snapshot = Snapshot([net])
    assert snapshot.holds()
    CHANGES[change](net)
    assert not snapshot.holds()
    assert Snapshot([net]).holds()


def test_a_step_of_training_is_no_change() -> None:
    net = Net()
    optimizer = dl.optim.Adam(net.parameters())
    snapshot = Snapshot([net])
    for _ in range(2):
        optimizer.zero_grad()
        net(dl.rand(4, 3)).square().mean().backward()
        optimizer.step()
    assert snapshot.holds()


def test_a_model_in_a_circle_ends() -> None:
    net = Net()
    net.table["self"] = [net.table, net]
    assert Snapshot([net]).holds()


def test_what_a_call_keeps_in_a_replica_is_gone_at_the_next() -> None:
    net = Net()
    replica = Replica(net, dl.device("cpu"))
    module: Any = replica.module
    for _ in range(2):
        replica.follow()
        assert module.last is None
        module.last = 1


@pytest.mark.parametrize("change", ["a mode", "an attribute", "a module in a list", "memory", "gradients"])
def test_replicas_follow_after_calls_without_a_change(change: str) -> None:
    net = Net()
    replica, x = Replica(net, dl.device("cpu")), dl.rand(4, 3)
    for _ in range(3):
        replica.follow()
    CHANGES[change](net)
    replica.follow()
    net.eval()
    replica.follow()
    module: Any = replica.module
    assert module(x).tolist() == net(x).tolist()
    assert module.layers[0].weight.requires_grad == net.layers[0].weight.requires_grad
