"""Copies of a model's structure on other devices."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np

import dl4all as dl
from dl4all.multi_device.replica import Replica
from dl4all.nn.module import Module
from tests.support.parallel_training import convolutions, tiny, vectors


def filled(replica: Replica) -> Replica:
    """With the model's contents."""
    with dl.no_grad():
        for source, made in replica.pairs.values():
            if source.storage is not made.storage:
                made.copy_(source.to(replica.device))
    return replica


def layers_of(replica: Replica) -> Any:
    return replica.module


def test_a_replica_computes_the_same_elsewhere() -> None:
    model = tiny().eval()
    replica = filled(Replica(model, dl.device("cpu#1")))
    x = dl.from_numpy(vectors(5, 0), "cpu")
    output = replica.module(x.to("cpu#1"))
    assert str(output.device) == "cpu#1"
    np.testing.assert_array_equal(output.numpy(), model(x).numpy())
    assert np.ptp(output.numpy()) > 0
    assert [name for name, _ in replica.module.named_parameters()] == [n for n, _ in model.named_parameters()]


def test_on_the_models_device_memory_is_shared() -> None:
    model = tiny()
    replica = Replica(model, dl.device("cpu"))
    for own, made in zip(model.parameters(), replica.module.parameters(), strict=True):
        assert own is not made
        assert own.storage is made.storage
    replica.module(dl.from_numpy(vectors(5, 0), "cpu")).sum().backward()
    assert all(own.grad is None for own in model.parameters())
    assert all(made.grad is not None for made in replica.module.parameters())


def test_memory_that_a_model_got_since_is_shared_after_following() -> None:
    model = tiny()
    replica = Replica(model, dl.device("cpu"))
    other = dl.randn(8, 4, device="cpu")
    model[0].weight.storage, model[0].weight.strides, model[0].weight.offset = other.storage, (4, 1), 0
    replica.follow()
    assert layers_of(replica)[0].weight.storage is other.storage


def test_attributes_modes_and_modules_are_followed() -> None:
    model = convolutions()
    replica = Replica(model, dl.device("cpu#1"))
    model.eval()
    model[3].p = 0.9
    setattr(model, "5", dl.nn.Linear(8 * 36, 2))
    model[0].weight.requires_grad_(False)
    model.append(dl.nn.Tanh())
    assert replica.module.training
    replica.follow()
    assert [module.training for module in layers_of(replica)][:6] == [False] * 5 + [True]
    assert layers_of(replica)[3].p == 0.9
    assert layers_of(replica)[5].weight.shape == (2, 8 * 36)
    assert not layers_of(replica)[0].weight.requires_grad
    assert layers_of(replica)[0].bias.requires_grad
    assert isinstance(layers_of(replica)[6], dl.nn.Tanh)
    assert {str(p.device) for p in replica.module.parameters()} == {"cpu#1"}
    assert str(model[5].weight.device) == "cpu"


def test_removed_attributes_and_modules_are_followed() -> None:
    model: Any = tiny()
    model.extra = 5
    replica = Replica(model, dl.device("cpu#1"))
    del model.extra
    replica.follow()
    assert not hasattr(replica.module, "extra")


def test_what_is_shared_stays_shared() -> None:
    """A module in two places, and a parameter of two modules."""
    model = dl.nn.Sequential(dl.nn.Linear(4, 4), dl.nn.Linear(4, 4))
    model[1].weight = model[0].weight
    model.append(model[0])
    replica = Replica(model, dl.device("cpu#1"))
    assert layers_of(replica)[2] is layers_of(replica)[0]
    assert layers_of(replica)[1].weight is layers_of(replica)[0].weight
    assert len(replica.pairs) == 3


def test_hooks_are_the_models() -> None:
    model = tiny()
    replica = filled(Replica(model, dl.device("cpu#1")))
    calls: list[int] = []
    remove = model[0].register_forward_hook(lambda module, inputs, output: calls.append(1))
    replica.module(dl.from_numpy(vectors(5, 0), "cpu#1"))
    assert calls == [1]
    remove()
    replica.module(dl.from_numpy(vectors(5, 0), "cpu#1"))
    assert calls == [1]


def test_other_modules_in_place_of_copies() -> None:
    class Other(Module):
        pass

    def convert(source: Module, made: Module) -> Module:
        return Other() if isinstance(source, dl.nn.Tanh) else made

    replica = Replica(tiny(), dl.device("cpu#1"), convert)
    assert [type(module).__name__ for module in layers_of(replica)] == [
        "Linear",
        "Other",
        "Dropout",
        "Linear",
    ]


def test_nothing_keeps_a_replica() -> None:
    model = tiny()
    replica = Replica(model, dl.device("cpu#1"))
    parameter = weakref.ref(next(replica.module.parameters()))
    del replica
    gc.collect()
    assert parameter() is None
