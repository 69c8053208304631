"""PyTorch's database of modules computed by dl4all.nn: a part of the nightly ``lab.peer_databases``."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="its database is computed")
pytest.importorskip("expecttest", reason="PyTorch's databases import it")

from lab.peer_databases import modules  # noqa: E402

EQUAL = [
    "nn.Linear", "nn.Bilinear", "nn.Conv1d", "nn.ConvTranspose2d", "nn.LazyConv3d", "nn.BatchNorm2d",
    "nn.InstanceNorm1d", "nn.MaxPool2d", "nn.AdaptiveAvgPool1d", "nn.Embedding", "nn.GRUCell", "nn.RNNCell",
    "nn.L1Loss", "nn.MarginRankingLoss", "nn.ReflectionPad2d", "nn.PReLU",
]  # fmt: skip
"""Modules of each kind."""


def test_modules_are_equal() -> None:
    entries = modules.entries(torch.float32)
    outcomes = {name: modules.check(name, entries[name], torch.float32) for name in EQUAL}
    different: dict[str, Any] = {name: o.reasons for name, o in outcomes.items() if o.reasons}
    assert {name: next(iter(reasons))[:200] for name, reasons in different.items()} == {}
    assert all(outcome.counts["equal"] for outcome in outcomes.values())
