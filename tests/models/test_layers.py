"""The layers of networks one after the other are the network."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.errors import ShapeError

NETWORKS: dict[str, tuple[Callable[[], Any], tuple[int, ...]]] = {
    "gpt": (lambda: dl.models.GPT(11, 8, n_layer=2, n_head=2, n_embd=6), (2, 5)),
    "lenet": (lambda: dl.models.LeNet(), (2, 1, 28, 28)),
    "mlp": (lambda: dl.models.MLP(12, [7, 5], 3), (2, 3, 4)),
    "mobilenet": (lambda: dl.models.mobilenet_v2(5, 3, 0.25), (2, 3, 32, 32)),
    "resnet": (lambda: dl.models.resnet18(5, 2, 4), (2, 2, 33, 31)),
    "resnet, folded": (lambda: dl.models.resnet18(5, 2, 4).eval().fold_batch_norm(), (2, 2, 33, 31)),
    "vgg": (lambda: dl.models.vgg11_bn(5, 1, 2), (2, 1, 32, 33)),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_one_after_the_other_they_are_the_network(name: str) -> None:
    make, shape = NETWORKS[name]
    network = make().eval()
    inputs = dl.randint(0, 11, shape) if name == "gpt" else dl.randn(*shape)
    expected = network(inputs)
    x = inputs
    names = [name for name, _ in network.layers()]
    for _, layer in network.layers():
        x = layer(x)
    assert len(set(names)) == len(names)
    assert expected.shape == x.shape
    assert float(expected.numpy().std()) > 0
    np.testing.assert_array_equal(x.numpy(), expected.numpy())


@pytest.mark.parametrize("name", NETWORKS)
def test_they_have_all_parameters(name: str) -> None:
    network = NETWORKS[name][0]()
    layers = [layer for _, layer in network.layers() if isinstance(layer, dl.nn.Module)]
    assert {id(p) for layer in layers for p in layer.parameters()} == {id(p) for p in network.parameters()}


def test_the_layers_of_a_network_refuse_what_it_refuses() -> None:
    network = NETWORKS["gpt"][0]()
    with pytest.raises(ShapeError, match=r"\[GPT\] expected ints of shape \(N, up to 8\)"):
        network.layers()[0][1](dl.randint(0, 11, (2, 9)))


def test_dropout_follows_the_mode_of_the_network() -> None:
    network = dl.models.GPT(11, 8, n_layer=1, n_head=2, n_embd=6, dropout=0.5)
    embed = network.layers()[0][1]
    tokens = dl.randint(0, 11, (2, 5))
    assert (embed(tokens).numpy() == 0).any()
    network.eval()
    assert not (embed(tokens).numpy() == 0).any()
