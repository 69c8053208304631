"""The copy of a model that an inference queue computes with."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import dl4all as dl
from dl4all.multi_device.serving.request import Request
from dl4all.multi_device.serving.served_replica import ServedReplica
from tests.conftest import need


def test_it_keeps_the_model_of_its_beginning(device: str) -> None:
    model = dl.nn.Sequential(dl.nn.Linear(3, 2), dl.nn.Dropout(0.5)).to("cpu")
    x = dl.randn(4, 3, device="cpu")
    expected = model.eval()(x).numpy()
    model.train()
    replica = ServedReplica(model, dl.device(device), 4)
    assert not any(p.requires_grad for p in replica._model.parameters())
    dl.nn.init.zeros_(model[0].weight)
    with dl.InferenceQueue(model, dl.DeviceGroup(["cpu"])) as owner:
        requests = [Request((row[None],), owner, on_virtual_clock=False) for row in x.numpy()]
        found = replica.compute(requests)
    np.testing.assert_allclose(np.stack(found), expected, rtol=1e-5, atol=1e-6)
    assert all(p.requires_grad for p in model.parameters())
    assert model.training


def test_speeds_are_those_of_late() -> None:
    replica = ServedReplica(dl.nn.Linear(3, 3), dl.device("cpu"), 4)
    assert replica.seconds_per_row == 0.0
    replica.took(4.0, 1, 2)
    assert replica.seconds_per_row == 2.0
    replica.took(1.0, 2, 1)
    assert (replica.seconds_per_row, replica.requests) == (1.5, 3)


@pytest.mark.vulkan
def test_models_of_files_compute_on_each_device(tmp_path: Path) -> None:
    """Their compiled calls belong to one copy; those of another would find its weights on another device."""
    need("vulkan:0")
    network = dl.nn.Sequential(dl.nn.Linear(6, 8), dl.nn.ReLU(), dl.nn.Linear(8, 3)).eval().to("cpu")
    x = dl.randn(5, 6, device="cpu")
    dl.onnx.export(network, (x,), tmp_path / "model.onnx", dynamic={"x": {0: "rows"}}, input_names=["x"])
    model = dl.onnx.load(tmp_path / "model.onnx", "cpu")
    for name in ("vulkan:0", "cpu#1"):
        with dl.InferenceQueue(model, dl.DeviceGroup([name])) as queue:
            for _ in range(5):  # from the second call on they are compiled
                found = queue.submit_batch(x).result(timeout=30)
                np.testing.assert_allclose(found.numpy(), network(x).numpy(), rtol=1e-5, atol=1e-6)
            assert vars(queue._replicas[0]._model)["_compiled"].specializations
    over = dl.parallel(model, ["vulkan:0", "cpu#1"]).eval()
    for _ in range(4):
        np.testing.assert_allclose(over(x).numpy(), network(x).numpy(), rtol=1e-5, atol=1e-6)
