"""``Trainer(compile=True)`` does what the Trainer does without."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.data import DataLoader, TensorDataset
from dl4all.errors import ArgumentError, GradientError
from dl4all.graph.run.compiled import CompileWarning
from dl4all.training import prepare, read_config

RELATIVE, ABSOLUTE = 2e-4, 2e-5  # of what AdamW makes of gradients that agree to the ops' tolerances


@pytest.fixture(autouse=True)
def nothing_runs_uncompiled() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error", CompileWarning)
        yield


def batches(size: int = 15) -> DataLoader:
    return DataLoader(dl.data.spiral(90), size, device=None)


def trainer(device: str = "cpu", *, drop: float = 0.0, **options: Any) -> dl.Trainer:
    dl.manual_seed(0)
    nn = dl.nn
    net = nn.Sequential(nn.Linear(2, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(drop), nn.Linear(16, 3))
    optimizer = dl.optim.AdamW(net.parameters(), lr=0.02)
    for name in ("scheduler", "ema"):
        if make := options.pop(f"make_{name}", None):
            options[name] = make(optimizer, net)
    options = {"metrics": ["accuracy"], "progress": False, **options}
    return dl.Trainer(net, nn.CrossEntropyLoss(), optimizer, device=device, **options)


def assert_same(one: dl.Trainer, other: dl.Trainer) -> None:
    assert (one.step, one.epoch) == (other.step, other.epoch)
    for mine, theirs in zip(one.history.rows, other.history.rows, strict=True):
        assert mine.keys() == theirs.keys()
        np.testing.assert_allclose(list(mine.values()), list(theirs.values()), RELATIVE, ABSOLUTE)
    found, expected = one.model.state_dict(), other.model.state_dict()
    for name, value in expected.items():
        np.testing.assert_allclose(found[name].numpy(), value.numpy(), RELATIVE, ABSOLUTE, err_msg=name)


def replays(training: dl.Trainer) -> int:
    """How many specialisations its steps have."""
    compiled: Any = training._compiled
    return sum(map(len, compiled.specializations.values()))


def cosine(optimizer: Any, net: Any) -> Any:
    return dl.optim.lr_scheduler.OneCycleLR(optimizer, 0.05, total_steps=24)


def average(optimizer: Any, net: Any) -> Any:
    return dl.optim.EMA(net.parameters(), 0.8)


OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "whole steps": {"stop_on_nan": False},
    "clipped": {"clip_norm": 0.05},
    "clipped whole steps": {"clip_norm": 0.05, "stop_on_nan": False},
    "accumulated": {"accumulate": 2, "clip_norm": 0.5},
    "accumulated with a rest": {"accumulate": 4},
    "averaged": {"make_ema": average, "stop_on_nan": False},
    "a rate for each step": {"make_scheduler": cosine, "scheduler_interval": "step", "stop_on_nan": False},
    "dropout": {"drop": 0.3},
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("case", OPTIONS)
def test_the_same_curve(case: str, device: str) -> None:
    one, other = (trainer(device, compile=compiled, **OPTIONS[case]) for compiled in (True, False))
    for training in (one, other):
        dl.manual_seed(1)
        training.fit(batches(), 4, batches(45))
    assert replays(one) >= 1
    assert_same(one, other)


def test_a_last_batch_that_is_smaller() -> None:
    one, other = (trainer(compile=compiled) for compiled in (True, False))
    for training in (one, other):
        training.fit(batches(20), 4)  # four batches of 20, one of 10
    assert replays(one) == 2
    assert_same(one, other)


@pytest.mark.parametrize("stop_on_nan", [True, False])
def test_a_checkpoint_in_between(stop_on_nan: bool, tmp_path: Path, device: str) -> None:
    """Parameters, the optimizer's state and its number of steps are those that were loaded."""
    one, other = (trainer(device, compile=compiled, stop_on_nan=stop_on_nan) for compiled in (True, False))
    for training in (one, other):
        training.fit(batches(), 2)
        folder = tmp_path / str(id(training))
        state = {"model": training.model.state_dict(), "optimizer": training.optimizer.state_dict()}
        dl.io.save_checkpoint(folder, training.step, state)
        training.fit(batches(), 3)
        loaded = dl.io.load_checkpoint(folder)
        training.model.load_state_dict(loaded["model"])
        training.optimizer.load_state_dict(loaded["optimizer"])
        training.fit(batches(), 5)
    assert_same(one, other)


def test_a_resumed_run(tmp_path: Path) -> None:
    """It began uncompiled, and another one has no break."""
    whole = trainer()
    whole.fit(batches(), 4)
    trainer(folder=tmp_path).fit(batches(), 2)
    resumed = trainer(folder=tmp_path, compile=True)
    resumed.fit(batches(), 4, resume=True)
    assert replays(resumed) >= 1
    assert_same(resumed, whole)


def test_a_rate_that_is_changed_by_hand() -> None:
    def halve(training: dl.Trainer, row: dict[str, Any]) -> None:
        training.optimizer.param_groups[0]["lr"] /= 2

    one, other = (
        trainer(compile=compiled, stop_on_nan=False, callbacks=[halve]) for compiled in (True, False)
    )
    for training in (one, other):
        training.fit(batches(), 4)
    assert_same(one, other)


def test_a_loss_that_is_not_finite_stops_before_it_does_harm(device: str) -> None:
    """In a replay, too."""
    x = np.random.default_rng(0).standard_normal((9, 3, 2)).astype(np.float32)
    x[8, 1] = np.nan
    training = trainer(device, compile=True)
    data = DataLoader(TensorDataset(x.reshape(-1, 2), np.arange(27) % 3), 3, device=None)
    with pytest.raises(GradientError, match=r"the loss is nan at batch 8 of epoch 1 \(step 8\)"):
        training.fit(data, 1)
    assert replays(training) == 1
    assert all(np.isfinite(p.detach().numpy()).all() for p in training.model.parameters())


def test_several_devices_are_refused() -> None:
    with pytest.raises(ArgumentError, match="compiled for one device"):
        trainer(compile=True, devices=["cpu", "cpu"])


def test_a_file_may_ask_for_it(tmp_path: Path) -> None:
    losses = []
    for compiled in ("true", "false"):
        path = tmp_path / "run.toml"
        path.write_text(
            "epochs = 3\n[data]\nname = 'spiral'\nbatch_size = 16\n[model]\nname = 'mlp'\n"
            f"[optimizer]\nname = 'SGD'\nlr = 0.1\n[trainer]\ncompile = {compiled}\n"
        )
        run = prepare(read_config(path), device="cpu", folder=tmp_path / compiled, progress=False)
        losses.append(run.fit()["loss"])
        assert (run.trainer._compiled is not None) == (compiled == "true")
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-5)
