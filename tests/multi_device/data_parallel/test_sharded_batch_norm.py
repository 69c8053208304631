"""Batch normalization over several devices: statistics, gradients and running statistics of one device."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.errors import ShapeError
from dl4all.multi_device.data_parallel.batch_norm import combined
from dl4all.scheduler.streams.group import DeviceGroup
from tests.support.parallel_training import TIMEOUT

pytestmark = pytest.mark.usefixtures("deadline")


@pytest.fixture
def group() -> Iterator[DeviceGroup]:
    with DeviceGroup(["cpu", "cpu#1", "cpu#2"], timeout=TIMEOUT) as made:
        yield made


def batch(*shape: int, seed: int = 0) -> dl.Tensor:
    """Rows of different means, so that shards have other statistics than the whole."""
    array = np.random.default_rng(seed).standard_normal(shape)
    array += np.linspace(0, 5, shape[0]).reshape(-1, *[1] * (len(shape) - 1))
    return dl.from_numpy(array.astype("f"), "cpu")


def close(actual: Any, expected: Any) -> None:
    assert np.ptp(expected.numpy()) > 1e-3
    np.testing.assert_allclose(actual.numpy(), expected.numpy(), rtol=2e-5, atol=2e-6)


def test_statistics_of_parts_make_those_of_the_whole() -> None:
    """Also where the mean is large beside the deviations, and where a part has one element."""
    numbers = np.random.default_rng(1).standard_normal((50, 3)) + 1e4
    parts = np.split(numbers, [1, 20, 21, 30])
    counts, mean, variance = combined([np.stack([[len(p)] * 3, p.mean(0), p.var(0)]) for p in parts])
    assert counts.tolist() == [50] * 3
    np.testing.assert_allclose(mean, numbers.mean(0), rtol=1e-14)
    np.testing.assert_allclose(variance, numbers.var(0), rtol=1e-9)


LAYERS = [
    (dl.nn.BatchNorm1d, (13, 4), {}),
    (dl.nn.BatchNorm1d, (13, 4, 3), {"momentum": None}),
    (dl.nn.BatchNorm2d, (13, 4, 3, 2), {"momentum": 0.4, "eps": 1e-2}),
    (dl.nn.BatchNorm2d, (13, 4, 3, 2), {"affine": False}),
    (dl.nn.BatchNorm1d, (13, 4), {"track_running_stats": False}),
    (dl.nn.BatchNorm1d, (13, 4), {"bias": False}),
    (dl.nn.BatchNorm3d, (13, 4, 1, 2, 2), {}),
]


@pytest.mark.parametrize(("kind", "shape", "options"), LAYERS)
def test_a_layer_does_as_on_one_device(
    kind: Any, shape: tuple[int, ...], options: dict[str, Any], group: DeviceGroup
) -> None:
    """In three batches, and after them in evaluation."""
    layer = kind(4, **options)
    alone = copy.deepcopy(layer)
    network = dl.parallel(layer, group)
    for seed in range(3):
        inputs, outputs = [], []
        for one in (alone, network):
            x = batch(*shape, seed=seed).requires_grad_()
            y = one(x)
            (y * batch(*shape, seed=9)).square().mean().backward()
            inputs.append(x)
            outputs.append(y)
        close(outputs[1], outputs[0])
        close(inputs[1].grad, inputs[0].grad)
    for own, other in zip(layer.parameters(), alone.parameters(), strict=True):
        close(own.grad, other.grad)
    if layer.running_mean is not None:
        close(layer.running_mean, alone.running_mean)
        close(layer.running_var, alone.running_var)
        assert layer.num_batches_tracked.item() == alone.num_batches_tracked.item() == 3
    network.eval()
    alone.eval()
    close(network(batch(*shape, seed=5)), alone(batch(*shape, seed=5)))


def test_shards_with_statistics_of_their_own(group: DeviceGroup) -> None:
    """Outputs are normalized within each shard; the running statistics are the first one's."""
    layer = dl.nn.BatchNorm1d(4, affine=False)
    network = dl.parallel(layer, group, sync_batch_norm=False)
    x = batch(24, 4)
    y = network(x).numpy()
    shares = [network.balance.estimates[device].given for device in group]
    assert min(shares) > 1
    start = 0
    for share in shares:
        part = x.numpy()[start : start + share].astype(np.float64)
        expected = (part - part.mean(0)) / np.sqrt(part.var(0) + 1e-5)
        np.testing.assert_allclose(y[start : start + share], expected, rtol=1e-4, atol=1e-5)
        start += share
    first = x.numpy()[: shares[0]].astype(np.float64)
    np.testing.assert_allclose(layer.running_mean.numpy(), 0.1 * first.mean(0), rtol=1e-5)
    np.testing.assert_allclose(layer.running_var.numpy(), 0.9 + 0.1 * first.var(0, ddof=1), rtol=1e-5)
    assert layer.num_batches_tracked.item() == 1


def test_one_element_of_a_channel_is_too_few(group: DeviceGroup) -> None:
    layer = dl.nn.BatchNorm1d(4)
    network = dl.parallel(layer, group)
    with pytest.raises(ShapeError, match="more than 1 "):
        network(batch(1, 4))
    assert layer.num_batches_tracked.item() == 0


def test_shards_of_one_row_use_all_rows(group: DeviceGroup) -> None:
    layer = dl.nn.BatchNorm1d(4)
    alone = copy.deepcopy(layer)
    close(dl.parallel(layer, group)(batch(3, 4)), alone(batch(3, 4)))
    close(layer.running_var, alone.running_var)


def test_a_layer_in_evaluation_within_a_model_that_trains(group: DeviceGroup) -> None:
    """Its running statistics stay, and are what it uses."""
    model = dl.nn.Sequential(dl.nn.Linear(4, 4), dl.nn.BatchNorm1d(4))
    model[1].running_mean.copy_(dl.tensor([1.0, 2.0, 3.0, 4.0], device="cpu"))
    model[1].eval()
    alone = copy.deepcopy(model)
    close(dl.parallel(model, group)(batch(9, 4)), alone(batch(9, 4)))
    assert model[1].running_mean.tolist() == [1.0, 2.0, 3.0, 4.0]
    assert model[1].num_batches_tracked.item() == 0


def test_one_layer_called_twice(group: DeviceGroup) -> None:
    """With the same statistics for both calls in turn."""

    class Twice(dl.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = dl.nn.BatchNorm1d(4)

        def forward(self, x: dl.Tensor) -> dl.Tensor:
            return self.norm(self.norm(x).exp() * x)  # type: ignore[no-any-return]

    model = Twice()
    alone = copy.deepcopy(model)
    results = []
    for one in (alone, dl.parallel(model, group)):
        x = batch(11, 4).requires_grad_()
        (one(x) * batch(11, 4, seed=3)).square().mean().backward()
        results.append(x.grad)
    close(results[1], results[0])
    close(model.norm.running_mean, alone.norm.running_mean)
    close(model.norm.weight.grad, alone.norm.weight.grad)
    assert model.norm.num_batches_tracked.item() == 2
