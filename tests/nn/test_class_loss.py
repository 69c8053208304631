"""Losses of many classes beside PyTorch's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dl4all as dl

torch = pytest.importorskip("torch", reason="results are compared with PyTorch's")

CLASS_LOSSES = ("AdaptiveLogSoftmaxWithLoss", "LinearCrossEntropyLoss")
"""The losses that the tests of this file compare."""


def compare(name: str, args: Any, options: Any, target: Any, device: str) -> None:
    """Results and gradients of all parameters."""
    theirs = getattr(torch.nn, name)(*args, **options)
    ours = getattr(dl.nn, name)(*args, **options)
    ours.load_state_dict({key: value.numpy() for key, value in theirs.state_dict().items()})
    ours.to(device)
    x = np.random.default_rng(3).normal(size=(len(target), args[0])).astype(np.float32)
    got = ours(dl.tensor(x, device=device), dl.tensor(target, device=device))
    expected = theirs(torch.tensor(x), torch.tensor(target))
    got, expected = (part if isinstance(part, tuple) else (part,) for part in (got, expected))
    for one, other in zip(got, expected, strict=True):
        np.testing.assert_allclose(one.detach().numpy(), other.detach().numpy(), rtol=1e-5, atol=1e-6)
    got[-1].sum().backward()
    expected[-1].sum().backward()
    own = dict(ours.named_parameters())
    for key, p in theirs.named_parameters():
        np.testing.assert_allclose(own[key].grad.numpy(), p.grad.numpy(), rtol=1e-4, atol=1e-6, err_msg=key)


@pytest.mark.parametrize("bias", [False, True])
def test_adaptive_softmax(bias: bool, device: str) -> None:
    target = np.array([0, 19, 4, 5, 11, 9, 10])
    compare(CLASS_LOSSES[0], (8, 20, [5, 10]), {"div_value": 2.0, "head_bias": bias}, target, device)


@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_linear_cross_entropy(reduction: str, device: str) -> None:
    target = np.random.default_rng(1).integers(0, 3, (7, 2))
    options = {"out_features": (2,), "bias": True, "reduction": reduction, "label_smoothing": 0.1}
    compare(CLASS_LOSSES[1], (5, 3), options, target, device)


def test_predictions_and_bad_cutoffs() -> None:
    layer = dl.nn.AdaptiveLogSoftmaxWithLoss(16, 11, [2, 5])
    x = dl.rand(4, 16, device="cpu")
    logs = layer.log_prob(x).detach().numpy()
    np.testing.assert_allclose(np.exp(logs).sum(1), 1, rtol=1e-5)
    assert layer.predict(x).tolist() == logs.argmax(1).tolist()
    with pytest.raises(dl.errors.ArgumentError, match="cutoffs must increase"):
        dl.nn.AdaptiveLogSoftmaxWithLoss(6, 11, [5, 2])
