"""One seed on several devices: what is random is the same to the last bit, what is computed nearly so."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np
import pytest

import dl4all as dl
from dl4all import nn
from tests.conftest import need
from tests.support.operands import NDArray

GPUS = [pytest.param(name, marks=pytest.mark.vulkan) for name in ("vulkan:0", "kompute:0")]
EPOCHS = 3


class Run(NamedTuple):
    """What a training has shown of itself."""

    first: dict[str, NDArray]  # weights
    orders: list[list[int]]  # the labels of each batch
    masks: list[NDArray]  # of each dropout, step by step
    losses: list[float]


@functools.cache
def trained(name: str) -> Run:
    dl.manual_seed(5)
    rows = np.random.default_rng(1).standard_normal((48, 2, 4, 4)).astype(np.float32)
    labels = np.arange(48)
    data = dl.data.TensorDataset(rows, labels)
    net = nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1), nn.GELU(), nn.Dropout2d(0.3), nn.Flatten(),
        nn.Linear(64, 16), nn.GELU(), nn.Dropout(0.4), nn.Linear(16, 3),
    ).to(name)  # fmt: skip
    first = {key: tensor.numpy().copy() for key, tensor in net.state_dict().items()}
    masks: list[NDArray] = []
    for layer in (net[2], net[6]):
        layer.register_forward_hook(lambda _, inputs, output: masks.append(output.detach().numpy() == 0))
    optimizer = dl.optim.AdamW(net.parameters(), lr=0.02)
    loader = dl.data.DataLoader(data, 12, shuffle=True, seed=7, device=name)
    orders, losses = [], []
    for _ in range(EPOCHS):
        for x, y in loader:
            orders.append(y.tolist())
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(net(x), y % 3)
            loss.backward()
            optimizer.step()
            losses.append(float(loss.item()))
    return Run(first, orders, masks, losses)


@pytest.mark.parametrize("name", GPUS)
def test_a_training(name: str) -> None:
    need(name)
    expected, found = trained("cpu"), trained(name)
    assert {k: v.tobytes() for k, v in found.first.items()} == {
        k: v.tobytes() for k, v in expected.first.items()
    }
    assert found.orders == expected.orders
    assert len(found.masks) == len(expected.masks) == 2 * 4 * EPOCHS
    for one, other in zip(found.masks, expected.masks, strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_allclose(found.losses, expected.losses, rtol=1e-4)


def test_what_is_compared_differs() -> None:
    """From batch to batch, epoch to epoch and step to step: equal constants would say nothing."""
    run = trained("cpu")
    epochs = [tuple(np.concatenate(run.orders[4 * i : 4 * i + 4])) for i in range(EPOCHS)]
    assert len(set(epochs)) == EPOCHS
    for layer, share in ((0, 0.3), (1, 0.4)):
        masks = run.masks[layer::2]
        assert len({mask.tobytes() for mask in masks}) == len(masks)
        assert abs(np.mean(masks) - share) < 0.1
    assert np.ptp(run.losses) > 0.1


@pytest.mark.parametrize("name", GPUS)
@pytest.mark.parametrize(
    "init", ["uniform_", "normal_", "trunc_normal_", "xavier_uniform_", "kaiming_normal_"]
)
def test_weights_that_are_drawn_on_the_device(init: str, name: str) -> None:
    need(name)

    def drawn(place: str) -> Any:
        dl.manual_seed(11)
        return getattr(nn.init, init)(dl.empty(13, 7, device=place)).numpy()

    expected = drawn("cpu")
    assert np.unique(expected).size > 80
    np.testing.assert_array_equal(drawn(name), expected)
