"""Losses and gradients of whole models by compiled kernels, beside the NumPy bodies in float64.

A compiled graph runs the kernels that single calls run: comparing the two finds no kernel that is wrong.
Batches give batch normalisation many values in every channel. With two, as a small ResNet has for two
images of 32 x 32, rounding decides the losses after a few steps, by whatever code they are computed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import dl4all as dl
from dl4all.nn import functional as F
from dl4all.runtime.cpu.llvm import provider
from tests.support.host_launches import HostLaunches

Array = npt.NDArray[Any]
needs_compiler = pytest.mark.skipif(not provider.available(), reason="llvmlite is not installed")

TOLERANCES = {"resnet": 2e-5}  # of a gradient's largest element; the bodies in float32 come to 5e-6
TOLERANCE = 2e-6  # of the other models, where the bodies come to 4e-7
MODELS: dict[str, tuple[Callable[[], dl.nn.Module], tuple[int, ...], int]] = {  # shape, number of words
    "mlp": (lambda: dl.models.MLP(13, [17], 5), (7, 13), 0),
    "lenet": (dl.models.LeNet, (3, 1, 28, 28), 0),
    "resnet": (lambda: dl.models.resnet18(10, base_channels=8), (8, 3, 64, 64), 0),
    "gpt": (
        lambda: dl.models.GPT(29, block_size=8, n_layer=2, n_head=2, n_embd=16, dropout=0.0),
        (3, 8),
        29,
    ),
    "tagger": (lambda: dl.models.LSTMTagger(19, 8, 12, 5), (3, 7), 19),
}


def _gradients(name: str, dtype: str) -> tuple[Array, dict[str, Array]]:
    """The loss and the parameters' gradients of a training step."""
    make, shape, words = MODELS[name]
    dl.manual_seed(7)
    module = make().to("cpu").train()
    random = np.random.default_rng(3)
    operand = random.integers(0, words, shape) if words else random.random(shape, np.float32).astype(dtype)
    if dtype == "float64":
        module = module.to(dl.float64)
    result = module(dl.tensor(operand))
    scores = result[0] if isinstance(result, tuple) else result
    classes = scores.shape[-1]
    target = random.integers(0, classes, scores.shape[:-1])
    loss = F.cross_entropy(scores.reshape(-1, classes), dl.tensor(target.reshape(-1)))
    loss.backward()
    gradients = {}
    for key, parameter in module.named_parameters():
        assert parameter.grad is not None
        gradients[key] = parameter.grad.numpy()
    return loss.numpy(), gradients


@needs_compiler
@pytest.mark.parametrize("name", MODELS)
def test_losses_and_gradients(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    launches, plans = HostLaunches(monkeypatch), dl.device("cpu").plans
    loss, gradients = _gradients(name, "float32")
    assert launches.count > 0
    with monkeypatch.context() as patch:
        patch.setattr(provider, "enabled", False)
        plans.clear()  # those of kernels that other calls made
        launches.count = 0
        expected, exact = _gradients(name, "float64")
        assert launches.count == 0
    plans.clear()
    np.testing.assert_allclose(loss, expected, rtol=3e-6)
    tolerance = TOLERANCES.get(name, TOLERANCE)
    for key, gradient in gradients.items():
        largest = np.abs(exact[key]).max()
        np.testing.assert_allclose(gradient, exact[key], rtol=0, atol=tolerance * largest, err_msg=key)
