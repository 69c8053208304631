"""Losses as layers beside PyTorch's with the same arguments; their values are compared in tests/ops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.errors import ArgumentError
from tests.nn.test_class_loss import CLASS_LOSSES
from tests.nn.test_functional import COMPARED

torch = pytest.importorskip("torch", reason="layers are compared with PyTorch's")

RNG = np.random.default_rng(0)
SCORES, CLASSES = RNG.uniform(-2, 2, (7, 5)).astype(np.float32), RNG.integers(0, 5, 7)
LEFT, RIGHT = (RNG.uniform(0.1, 0.9, (7, 5)).astype(np.float32) for _ in range(2))
SIGNS = np.array([1, -1, 1, 1, -1, -1, 1])
WEIGHT = np.array([1, 2, 3, 4, 5], np.float32)

# A layer, its arguments (an array becomes a tensor) and what it is called with.
LOSSES: list[tuple[str, dict[str, Any], tuple[Any, ...]]] = [
    ("CrossEntropyLoss", {}, (SCORES, CLASSES)),
    ("CrossEntropyLoss", {"weight": WEIGHT, "ignore_index": 2}, (SCORES, CLASSES)),
    ("CrossEntropyLoss", {"label_smoothing": 0.1}, (SCORES, LEFT)),
    ("NLLLoss", {"weight": WEIGHT, "ignore_index": 1}, (SCORES, CLASSES)),
    ("MSELoss", {}, (LEFT, RIGHT)),
    ("L1Loss", {}, (LEFT, RIGHT)),
    ("SmoothL1Loss", {"beta": 0.2}, (LEFT, RIGHT)),
    ("HuberLoss", {"delta": 0.2}, (LEFT, RIGHT)),
    ("BCELoss", {"weight": WEIGHT}, (LEFT, RIGHT)),
    ("BCEWithLogitsLoss", {"weight": WEIGHT}, (SCORES, RIGHT)),
    ("BCEWithLogitsLoss", {"pos_weight": WEIGHT}, (SCORES, RIGHT)),
    ("KLDivLoss", {"log_target": True}, (-LEFT, -RIGHT)),
    ("KLDivLoss", {"reduction": "batchmean"}, (-LEFT, RIGHT)),
    ("CosineEmbeddingLoss", {"margin": 0.5}, (LEFT, SCORES, SIGNS)),
    ("HingeEmbeddingLoss", {"margin": 0.5}, (LEFT[:, 0].copy(), SIGNS)),
    ("MarginRankingLoss", {"margin": 0.5}, (LEFT[:, 0].copy(), RIGHT[:, 0].copy(), SIGNS)),
]


def both(name: str, arguments: dict[str, Any]) -> tuple[Any, Any]:
    def made(tensor: Any) -> dict[str, Any]:
        return {k: tensor(v) if isinstance(v, np.ndarray) else v for k, v in arguments.items()}

    ours = getattr(dl.nn, name)(**made(lambda a: dl.tensor(a, device="cpu")))
    return ours, getattr(torch.nn, name)(**made(torch.from_numpy))


@pytest.mark.filterwarnings(
    "ignore:reduction"
)  # PyTorch says that its kl_div's mean is not the mathematical one
@pytest.mark.parametrize(("name", "arguments", "given"), LOSSES)
def test_losses(name: str, arguments: Any, given: Any, device: str) -> None:
    """With every reduction; weights move with the layer."""
    reductions = [arguments["reduction"]] if "reduction" in arguments else ["mean", "sum", "none"]
    for reduction in reductions:
        ours, theirs = both(name, {**arguments, "reduction": reduction})
        assert list(ours.state_dict()) == list(theirs.state_dict())
        assert repr(ours) == repr(theirs)
        got = ours.to(device)(*(dl.tensor(a, device=device) for a in given))
        expected = theirs(*map(torch.from_numpy, given)).numpy()
        assert got.shape == expected.shape
        np.testing.assert_allclose(got.numpy(), expected, rtol=2e-5, atol=2e-6)


def test_every_loss_is_compared() -> None:
    losses = {name for name in vars(dl.nn) if name.endswith("Loss")}
    elsewhere = {*COMPARED, *CLASS_LOSSES}
    assert losses - elsewhere == {name for name, *_ in LOSSES}


def test_cosine_similarity(device: str) -> None:
    x, y = (dl.tensor(a, device=device) for a in (LEFT, RIGHT))
    expected = torch.nn.CosineSimilarity(0)(torch.from_numpy(LEFT), torch.from_numpy(RIGHT))
    np.testing.assert_allclose(dl.nn.CosineSimilarity(0)(x, y).numpy(), expected.numpy(), rtol=1e-5)


def test_an_unknown_reduction_is_refused_at_once() -> None:
    with pytest.raises(
        ArgumentError, match=r"\[MSELoss\] reduction must be one of none, mean, sum, got 'max'"
    ):
        dl.nn.MSELoss(reduction="max")
    with pytest.raises(ArgumentError, match=r"\[L1Loss\] reduction .* got 'batchmean'"):
        dl.nn.L1Loss(reduction="batchmean")
