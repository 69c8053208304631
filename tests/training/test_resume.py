"""Going on from a checkpoint of another run: what is refused, what may differ, and that nothing changes."""

from __future__ import annotations

import copy
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.data import DataLoader
from dl4all.errors import ArgumentError, ResumeError, WeightsError
from dl4all.io import checkpoints, load_checkpoint, save_checkpoint
from dl4all.optim import EMA, lr_scheduler


class Left(Exception):
    """Raised where a run is to be left."""


def make(
    folder: Path | None,
    seed: int = 3,
    *,
    hidden: int = 8,
    dtype: str = "float32",
    optimizer: str = "AdamW",
    rate: float = 0.02,
    schedule: str = "",
    ema: bool = False,
    groups: int = 1,
    **options: Any,
) -> dl.Trainer:
    dl.manual_seed(seed)
    net = dl.nn.Sequential(dl.nn.Linear(2, hidden), dl.nn.Tanh(), dl.nn.Linear(hidden, 3)).to("cpu", dtype)
    params: Any = list(net.parameters())
    if groups == 2:
        params = [{"params": params[:2]}, {"params": params[2:]}]
    stepper = getattr(dl.optim, optimizer)(params, lr=rate)
    scheduler = (
        getattr(lr_scheduler, schedule)(stepper, 2 if schedule == "StepLR" else 0.9) if schedule else None
    )
    average = EMA(net.parameters(), 0.9) if ema else None
    options = {"metrics": ["accuracy"], "checkpoint_every": 1, "progress": False, **options}
    return dl.Trainer(
        net, dl.nn.CrossEntropyLoss(), stepper, device="cpu", folder=folder, scheduler=scheduler, ema=average,
        **options,
    )  # fmt: skip


def loader(batch_size: int = 16, count: int = 90, dtype: str = "float32", **options: Any) -> DataLoader:
    x, y = dl.data.spiral(count).arrays
    options = {"shuffle": True, **options}
    return DataLoader(dl.data.TensorDataset(x.astype(dtype), y), batch_size, device=None, **options)


def run_until(trainer: dl.Trainer, batches: Any, batch: int) -> None:
    """Train, and leave in the middle of an epoch of six batches."""
    loss, seen = trainer.loss, 0

    def counting(outputs: Any, targets: Any) -> Any:
        nonlocal seen
        if (seen := seen + 1) > batch:
            raise Left
        return loss(outputs, targets)

    trainer.loss = counting
    with pytest.raises(Left):
        trainer.fit(batches, 9)


def everything(trainer: dl.Trainer, data: Any) -> str:
    """All that resuming can change, in a form that can be compared."""
    folder = trainer.folder
    assert folder is not None
    parts = [trainer.model.state_dict(), trainer.optimizer.state_dict()]
    parts += [
        part.state_dict() for part in (trainer.scheduler, trainer.ema, data) if hasattr(part, "state_dict")
    ]
    described = json.dumps(parts, default=lambda t: t.numpy().tolist(), sort_keys=True)
    files = sorted((str(path), path.read_bytes()) for path in folder.rglob("*") if path.is_file())
    counts = (
        trainer.epoch,
        trainer.step,
        trainer.history.rows,
        dl.get_rng_state(),
        trainer._interrupted.batches,
    )
    return repr((described, files, counts))


DIFFERENCES: dict[str, tuple[dict[str, Any], Callable[[], Any], list[str]]] = {
    "scheduler": ({"schedule": "StepLR"}, loader, ["scheduler: the checkpoint has none, this run StepLR"]),
    "ema": ({"ema": True}, loader, ["ema: the checkpoint has none, this run EMA"]),
    "optimizer": ({"optimizer": "SGD"}, loader, ["optimizer: the checkpoint has AdamW, this run SGD"]),
    "relative": ({"optimizer": "Adam"}, loader, ["optimizer: the checkpoint has AdamW, this run Adam"]),
    "groups": ({"groups": 2}, loader, [r"optimizer: the groups have \[2, 2\] parameters, the state's \[4\]"]),
    "accumulate": ({"accumulate": 2}, loader, ["accumulate: the checkpoint has 1, this run 2"]),
    "width": (
        {"hidden": 9},
        loader,
        [
            r"model: 0.weight is float32 of shape \(8, 2\) in the checkpoint, float32 of shape \(9, 2\)",
            r"model: 2.weight",
            r"optimizer: the saved exp_avg has shape \(8, 2\), its parameter \(9, 2\)",
        ],
    ),
    "precision": (
        {"dtype": "float64"},
        lambda: loader(dtype="float64"),
        [r"model: 0.bias is float32 of shape \(8,\) in the checkpoint, float64 of shape \(8,\) in this run"],
    ),
    "batch size": ({}, lambda: loader(32), ["data: .* batch_size is 16 in the state and 32 here"]),
    "samples": ({}, lambda: loader(count=96), ["data: .* samples is 90 in the state and 96 here"]),
    "order": ({}, lambda: loader(shuffle=False), ["data: .* shuffle is True in the state and False here"]),
    "rest": ({}, lambda: loader(drop_last=True), ["data: .* drop_last is False in the state and True here"]),
    "seed": ({}, lambda: loader(seed=4), ["data: seed is None in the state and 4 here"]),
    "list": ({}, lambda: list(loader()), ["data: the checkpoint is within an epoch, and list cannot go on"]),
    "metrics": ({"metrics": ()}, loader, ["metrics: the checkpoint is within an epoch that measures acc"]),
    "many": (
        {"optimizer": "SGD", "schedule": "StepLR", "ema": True, "accumulate": 3, "hidden": 4},
        lambda: loader(8),
        ["model: ", "optimizer: ", "scheduler: ", "ema: ", "accumulate: ", "data: "],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DIFFERENCES)
def test_a_checkpoint_of_another_run_changes_nothing(tmp_path: Path, name: str) -> None:
    run_until(make(tmp_path), loader(), 3)
    options, data, messages = DIFFERENCES[name]
    other, batches = make(tmp_path, seed=7, **options), data()
    before = everything(other, batches)
    with pytest.raises(ResumeError) as caught:
        other.fit(batches, 9, resume=True)
    for message in messages:
        assert caught.match(f"  - {message}")
    assert caught.match("so that nothing was changed:\n")
    lines = [line for line in str(caught.value).splitlines() if line.startswith("  - ")]
    assert len(lines) == len(messages) or name in ("width", "precision", "many")
    assert everything(other, batches) == before


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        ({"schedule": "StepLR"}, {}, "scheduler: the checkpoint has StepLR, this run none"),
        ({"schedule": "StepLR"}, {"schedule": "ExponentialLR"}, "has StepLR, this run ExponentialLR"),
        ({"schedule": "StepLR"}, {"schedule": "StepLR", "scheduler_interval": "step"},
         "scheduler_interval: the checkpoint has 'epoch', this run 'step'"),
        ({"ema": True}, {}, "ema: the checkpoint has one, this run none"),
    ],
)  # fmt: skip
def test_what_was_taken_away_or_changed(
    tmp_path: Path, first: dict[str, Any], second: dict[str, Any], message: str
) -> None:
    make(tmp_path, **first).fit(loader(), 1)
    other, batches = make(tmp_path, **second), loader()
    before = everything(other, batches)
    with pytest.raises(ResumeError, match=message):
        other.fit(batches, 9, resume=True)
    assert everything(other, batches) == before


def test_what_may_differ(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """How long and how often, what is shown, threads; at the end of an epoch what is measured, too. The
    optimizer's options are the checkpoint's, and a warning says which of this run's do not count."""
    make(tmp_path).fit(loader(), 2)
    other = make(
        tmp_path,
        seed=9,
        rate=0.5,
        metrics=(),
        checkpoint_every=None,
        keep=1,
        clip_norm=3.0,
        stop_on_nan=False,
    )
    with caplog.at_level(logging.WARNING, logger="dl4all"):
        other.fit(loader(num_workers=2, prefetch=1, timeout=60), 3, loader(), resume=True)
    assert other.optimizer.param_groups[0]["lr"] == 0.02
    assert "not with this run's: lr 0.02 for 0.5" in caplog.text
    assert [sorted(row) for row in other.history.rows] == [
        ["accuracy", "epoch", "loss"], ["accuracy", "epoch", "loss"], ["epoch", "loss", "val_loss"],
    ]  # fmt: skip


def test_a_schedule_is_no_other_option(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The rate that it has come to says nothing; the one that it began with does."""
    make(tmp_path, schedule="StepLR").fit(loader(), 3)
    with caplog.at_level(logging.WARNING, logger="dl4all"):
        make(tmp_path, schedule="StepLR").fit(loader(), 4, resume=True)
    assert not caplog.records
    with caplog.at_level(logging.WARNING, logger="dl4all"):
        make(tmp_path, schedule="StepLR", rate=0.3).fit(loader(), 5, resume=True)
    assert "initial_lr 0.02 for 0.3" in caplog.text


@pytest.mark.parametrize("drop", [True, False])
def test_checkpoints_of_earlier_versions(tmp_path: Path, drop: bool) -> None:
    """They said less of their runs; what they said is compared, and the run goes on to the last bit."""
    whole = make(tmp_path / "whole", ema=True, schedule="StepLR")
    whole.fit(loader(), 2)
    run_until(make(tmp_path / "old", ema=True, schedule="StepLR"), loader(), 4)
    step, path = checkpoints(tmp_path / "old")[-1]
    state = load_checkpoint(path)
    if drop:
        del state["run"]
        for name in ("samples", "batch_size", "shuffle", "drop_last"):
            del state["data"][name]
    save_checkpoint(tmp_path / "old", step, state)
    again = make(tmp_path / "old", seed=8, ema=True, schedule="StepLR")
    again.fit(loader(), 2, resume=True)
    for name, tensor in whole.model.state_dict().items():
        assert tensor.numpy().tobytes() == again.model.state_dict()[name].numpy().tobytes()
    other = make(tmp_path / "old", optimizer="Adagrad", schedule="StepLR")
    with pytest.raises(
        ResumeError, match=r"  - optimizer: (the state is of another optimizer|the checkpoint has)"
    ):
        other.fit(loader(), 3, resume=True)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda state: state.clear(), "it is no state of a Trainer: it lacks epoch, step, totals"),
        (lambda state: state.pop("model"), "it lacks model"),
        (lambda state: state.update(epoch=-1), "it is damaged: its epoch is -1"),
        (lambda state: state.update(step="7"), "its step is '7'"),
        (lambda state: state.update(totals=None), "its totals is None"),
        (lambda state: state.update(history=[1]), r"its history is \[1\]"),
        (lambda state: state.update(random="x"), "its random is 'x'"),
        (lambda state: state.update(optimizer=None), "optimizer: the checkpoint has AdamW, this run AdamW"),
        (lambda state: state.update(optimizer=[1]), "optimizer: expected what state_dict.. returned"),
        (lambda state: state.update(data=5), "data: expected what state_dict.. returned, a dict"),
    ],
)
def test_states_that_no_run_has_written(
    tmp_path: Path, change: Callable[[dict[str, Any]], Any], message: str
) -> None:
    run_until(make(tmp_path), loader(), 2)
    step, path = checkpoints(tmp_path)[-1]
    state = load_checkpoint(path)
    change(state)
    save_checkpoint(tmp_path, step, state)
    other, batches = make(tmp_path), loader()
    before = everything(other, batches)
    with pytest.raises(ResumeError, match=message):
        other.fit(batches, 9, resume=True)
    assert everything(other, batches) == before


class Refusing:
    """Data of somebody else that takes no state."""

    def __init__(self, error: type[Exception] | None) -> None:
        self.batches, self.error = list(loader()), error

    def __iter__(self) -> Any:
        return iter(self.batches)

    def __len__(self) -> int:
        return len(self.batches)

    def state_dict(self) -> dict[str, Any]:
        return {"place": 1}

    def load_state_dict(self, state: Any) -> None:
        if self.error is not None:
            raise self.error("no")


def test_a_part_that_refuses_after_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was loaded before it gets its own back; so it does where the history cannot be written."""
    options: dict[str, Any] = {"schedule": "StepLR", "ema": True}
    make(tmp_path, **options).fit(Refusing(None), 2)
    other, data = make(tmp_path, seed=9, **options), Refusing(KeyError)
    before = everything(other, data)
    with pytest.raises(KeyError):
        other.fit(data, 3, resume=True)
    assert everything(other, data) == before

    def full(self: Path, *_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    data.error = None
    with pytest.raises(OSError, match=r"No space left.*history\.jsonl"):
        other.fit(data, 3, resume=True)
    assert everything(other, data) == before


def test_the_best_without_an_average(tmp_path: Path) -> None:
    make(tmp_path).fit(loader(), 1)
    narrow, other = make(tmp_path, hidden=3), make(tmp_path, seed=8, ema=True)
    before = [everything(one, None) for one in (narrow, other)]
    with pytest.raises(ArgumentError, match="the best checkpoint, of step 6, has no average"):
        other.load_best()
    with pytest.raises(WeightsError, match="misshapen"):
        narrow.load_best()
    assert [everything(one, None) for one in (narrow, other)] == before


GARBAGE: list[Any] = [None, 5, "state", [], {}, {"x": 1}]


@pytest.mark.parametrize("garbage", GARBAGE, ids=repr)
def test_no_class_loads_garbage(garbage: Any) -> None:
    """Neither silently nor with an error of Python's own, and nothing changes."""
    trainer = make(None, ema=True, checkpoint_every=None)
    optimizer = trainer.optimizer
    step = lr_scheduler.StepLR(optimizer, 2)
    parts: list[Any] = [
        trainer.model, optimizer, trainer.ema, loader(), step, lr_scheduler.ReduceLROnPlateau(optimizer),
        lr_scheduler.ChainedScheduler([step]), lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=9),
        lr_scheduler.SequentialLR(optimizer, [step, lr_scheduler.ConstantLR(optimizer)], [1]),
        *(getattr(dl.optim, name)(trainer.model.parameters())
          for name in ("SGD", "Adam", "Adagrad", "Adadelta", "RMSprop", "Lion")),
    ]  # fmt: skip
    for part in parts:
        before = repr(part.state_dict())
        with pytest.raises(ArgumentError if part is not trainer.model else WeightsError) as caught:
            part.load_state_dict(garbage)
        assert caught.match(rf"^\[{type(part).__name__}\] ")
        assert repr(part.state_dict()) == before
        part.load_state_dict(part.state_dict())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda state: state.update(param_groups=[1]), "param_groups must be dicts with 'params'"),
        (lambda state: state.update(state=[1]), "'state' must have a dict for each parameter"),
        (lambda state: state["state"].update({0: 7}), "'state' must have a dict for each parameter"),
        (lambda state: state["param_groups"][0].update(betas=5), "the state's options cannot be used"),
        (lambda state: state["param_groups"][0].update(lr=-1.0), "lr must be at least 0"),
        (lambda state: state["param_groups"][0].update(lr="x"), "the state's options cannot be used"),
        (lambda state: state["state"][1].update(step="x"), "the saved step is 'x', not a count"),
        (lambda state: state["state"][1].update(exp_avg=np.ones(9)), r"has shape \(9,\), its parameter"),
        (lambda state: state["state"][1].update(exp_avg=np.array(["a"] * 8)), "exp_avg is <U1, not numbers"),
        (lambda state: state["state"].update({1: {"sum": np.ones(8)}}), "of another optimizer: it has sum"),
    ],
)  # fmt: skip
def test_a_state_of_an_optimizer_that_is_half_right(change: Callable[[Any], Any], message: str) -> None:
    trainer = make(None, checkpoint_every=None)
    trainer.fit(loader(), 1)
    good = trainer.optimizer.state_dict()
    state = {
        "param_groups": [dict(good["param_groups"][0])],
        "state": {k: dict(v) for k, v in good["state"].items()},
    }
    change(state)
    before = repr(trainer.optimizer.state_dict())
    with pytest.raises(ArgumentError, match=rf"^\[AdamW\] .*{message}"):
        trainer.optimizer.load_state_dict(state)
    assert repr(trainer.optimizer.state_dict()) == before


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"last_epoch": "x"}, "the state's last_epoch is 'x', where this one has 0"),
        ({"base_lrs": [1.0, 2.0]}, "1 groups, but the state's base_lrs has 2"),
        ({"base_lrs": ["a"]}, r"the state's base_lrs is \['a'\]"),
        ({"step": 3}, "it has step, too"),
    ],
)
def test_a_state_of_a_scheduler_that_is_half_right(change: dict[str, Any], message: str) -> None:
    trainer = make(None, checkpoint_every=None)
    scheduler = lr_scheduler.StepLR(trainer.optimizer, 2)
    for one in (scheduler, lr_scheduler.ChainedScheduler([scheduler])):
        state = scheduler.state_dict() | change
        before = copy.deepcopy(one.state_dict())
        with pytest.raises(ArgumentError, match=rf"^\[StepLR\] .*{message}"):
            one.load_state_dict(state if one is scheduler else {**one.state_dict(), "_schedulers": [state]})
        assert one.state_dict() == before


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"shadow": 5}, "shadow must be a list, got int"),
        ({"decay": "x"}, "decay 'x' must be from 0 to 1"),
        ({"decay": 1.5}, "decay 1.5"),
        ({"updates": None}, "updates None a count"),
        ({"shadow": [["a", "b"]]}, "averages must be numbers"),
    ],
)
def test_a_state_of_an_average_that_is_half_right(change: dict[str, Any], message: str) -> None:
    ema = EMA([dl.tensor([1.0, 2.0], device="cpu")])
    with pytest.raises(ArgumentError, match=rf"^\[EMA\] .*{message}"):
        ema.load_state_dict({**ema.state_dict(), **change})
    assert (ema.decay, ema.updates, ema.shadow[0].tolist()) == (0.999, 0, [1.0, 2.0])
