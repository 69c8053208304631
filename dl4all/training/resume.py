"""Checkpoints of a run, and going on from one: everything is compared before anything is changed."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dl4all.data.loader import DataLoader
from dl4all.data.shard import LoaderShard
from dl4all.errors import ArgumentError, ResumeError
from dl4all.io.checkpoint import best_step, checkpoints, load_checkpoint, save_checkpoint
from dl4all.ops.random.generator import Generator, default_generator
from dl4all.optim.ema import EMA
from dl4all.optim.optimizer import Optimizer
from dl4all.optim.state.zero_redundancy import ZeroRedundancyOptimizer
from dl4all.training.processes import merged
from dl4all.training.progress import batch_count
from dl4all.training.totals import Totals

if TYPE_CHECKING:
    from dl4all.training.trainer import Trainer

KEYS = ("epoch", "step", "totals", "history", "random", "model", "optimizer", "scheduler", "ema", "data")
"""The entries of the state of a training run since the first version; ``run`` and ``scaler`` came later."""

SCHEDULED = ("lr", "momentum", "betas")
"""Options of an optimizer that schedulers change."""

logger = logging.getLogger("dl4all")


def best_of(folder: Path) -> tuple[int | None, dict[str, Any]]:
    """The step of the best checkpoint of a folder, and its state."""
    step = best_step(folder)
    return step, load_checkpoint(folder / f"step-{step or 0:08d}")


def check_new(folder: Path) -> None:
    """
    Raises:
        ArgumentError: the folder has the checkpoints of another run.
    """
    if checkpoints(folder):
        raise ArgumentError(
            f"[Trainer] {folder} holds the checkpoints of an earlier run; pass resume=True to go on with it, "
            "or another folder"
        )


def facts_of(trainer: Trainer) -> dict[str, Any]:
    """The facts of a checkpoint about its run beside the state, so that another one can be compared."""
    return {
        "optimizer": _class_name(trainer.optimizer),
        "scheduler": _class_name(trainer.scheduler),
        "scheduler_interval": None if trainer.scheduler is None else trainer.scheduler_interval,
        "accumulate": trainer.accumulate,
    }


def saved_state(trainer: Trainer, train: Any, totals: Totals) -> dict[str, Any]:
    """The state from which a run goes on, with the sums of the epoch so far."""
    return {
        "run": facts_of(trainer),
        "epoch": trainer.epoch,
        "step": trainer.step,
        "totals": totals.state_dict(),
        "history": trainer.history.rows,
        "random": default_generator().get_state(),
        "model": trainer.model.state_dict(),
        "optimizer": trainer.optimizer.state_dict(),
        "scheduler": None if trainer.scheduler is None else trainer.scheduler.state_dict(),
        "ema": None if trainer.ema is None else trainer.ema.state_dict(),
        "scaler": trainer.scaler.state_dict() or None,
        "data": train.state_dict() if hasattr(train, "state_dict") else None,
    }


def save_within(trainer: Trainer, train: Any) -> None:
    """Write a checkpoint within an epoch, if it is the turn of this step.

    Raises:
        ArgumentError: the data cannot go on there.
    """
    every, totals = trainer.checkpoint_every, trainer._totals
    if trainer.folder is None or every is None or trainer.step % every:
        return
    if not hasattr(train, "state_dict"):
        raise ArgumentError(
            "[Trainer] checkpoint_every needs data that can go on in the middle of an epoch, such as a "
            f"DataLoader, not {type(train).__name__}"
        )
    count = batch_count(train)
    if count is None or totals.batches < count:  # after the last batch the epoch's own checkpoint follows
        save(trainer, train, totals)


def save(trainer: Trainer, train: Any, totals: Totals) -> None:
    """Write a checkpoint, in the first process, with the sums of the epoch so far of all."""
    assert trainer.folder is not None
    if trainer._local is not None:
        trainer._local.settle()
    if isinstance(trainer.optimizer, ZeroRedundancyOptimizer):
        trainer.optimizer.consolidate_state_dict()
    # Processes that come and go know the sums of all.
    elastic = trainer._elastic is not None
    whole = totals if elastic else merged(trainer._processes, totals, trainer.metrics)
    if trainer._writes:
        save_checkpoint(trainer.folder, trainer.step, saved_state(trainer, train, whole), trainer.keep)


def resume(trainer: Trainer, train: Any, state: Mapping[str, Any], others: bool = False) -> None:
    """Let a trainer and its data go on from the state of a checkpoint, or from that of `others`.

    Raises:
        ResumeError: the state is of another run, or of none; the message lists all that differs, and nothing
            was changed.
    """
    if found := differences(trainer, train, state):
        lines = "".join(f"  - {line}\n" for line in found)
        if others:
            raise ResumeError(
                "[Trainer] this process cannot join the others, which train something else (the checkpoint "
                f"is their state):\n{lines}Run the same script in all of them"
            )
        raise ResumeError(
            f"[Trainer] the checkpoint in {trainer.folder} is of another run, so that nothing was changed:\n"
            + lines
            + "Give this run what the checkpoint has; or begin a new one with its weights, in another "
            f"folder, by model.load_state_dict(dl.io.load_checkpoint({str(trainer.folder)!r})['model'])"
        )
    if options := _options(trainer, state):
        logger.warning(
            "[Trainer] the optimizer goes on with the options of the checkpoint, not with this run's: %s",
            "; ".join(options),
        )
    _apply(trainer, train, state)


def differences(trainer: Trainer, train: Any, state: Any) -> list[str]:
    """All that keeps a run from going on from a state, a line for each."""
    if not isinstance(state, Mapping) or (missing := [key for key in KEYS if key not in state]):
        lacks = ", ".join(missing) if isinstance(state, Mapping) else "everything"
        return [f"it is no state of a Trainer: it lacks {lacks}"]
    if damaged := _damaged(state):
        return damaged
    run = state.get("run") or {}
    return [
        *_of_model(trainer.model.state_dict(), state["model"]),
        *_of_part("optimizer", trainer.optimizer, state["optimizer"], run),
        *_of_part("scheduler", trainer.scheduler, state["scheduler"], run),
        *_of_part("ema", trainer.ema, state["ema"], run),
        *_of_settings(trainer, state, run),
        *_of_data(train, state["data"], within_epoch=bool(state["totals"]["batches"])),
    ]


def _damaged(state: Mapping[str, Any]) -> list[str]:
    """The damage of a state that a Trainer cannot have written."""
    totals, history = state["totals"], state["history"]
    good = {
        "epoch": _is_count(state["epoch"]),
        "step": _is_count(state["step"]),
        "totals": isinstance(totals, Mapping)
        and all(_is_count(totals.get(name)) for name in ("samples", "batches"))
        and isinstance(totals.get("sums"), Mapping),
        "history": isinstance(history, list) and all(isinstance(row, Mapping) for row in history),
        "model": isinstance(state["model"], Mapping),
        "random": not _refused(lambda: Generator().set_state(state["random"])),
    }
    return [f"it is damaged: its {name} is {state[name]!r:.100}" for name, fits in good.items() if not fits]


def _of_model(own: Mapping[str, Any], saved: Mapping[str, Any]) -> list[str]:
    lines = [f"model: the checkpoint has no {name}, this run has" for name in own if name not in saved]
    lines += [f"model: the checkpoint has {name}, this run has not" for name in saved if name not in own]
    for name in own:
        theirs = saved.get(name)
        if theirs is not None and (_kind(theirs) != _kind(own[name])):
            lines.append(
                f"model: {name} is {_kind(theirs)} in the checkpoint, {_kind(own[name])} in this run"
            )
    return lines


def _kind(array: Any) -> str:
    return f"{getattr(array, 'dtype', type(array).__name__)} of shape {tuple(getattr(array, 'shape', ()))}"


def _of_part(name: str, part: Any, saved: Any, run: Mapping[str, Any]) -> list[str]:
    """The differences of the optimizer, the scheduler or the average."""
    mine, theirs = _class_name(part), run.get(name) or (None if saved is None else "one")
    if (part is None) != (saved is None) or (name in run and mine != run[name]):
        return [f"{name}: the checkpoint has {theirs or 'none'}, this run {mine or 'none'}"]
    if part is None:
        return []
    if not hasattr(part, "load_state_dict"):
        return [f"{name}: {mine} has no load_state_dict"]
    check = getattr(part, "_check_state", None)
    return [] if check is None else [f"{name}: {line}" for line in _refused(lambda: check(saved))]


def _of_settings(trainer: Trainer, state: Mapping[str, Any], run: Mapping[str, Any]) -> list[str]:
    facts = facts_of(trainer)
    lines = []
    for name in ("scheduler_interval", "accumulate"):
        if name in run and run[name] is not None and facts[name] is not None and run[name] != facts[name]:
            lines.append(f"{name}: the checkpoint has {run[name]!r}, this run {facts[name]!r}")
    measured, sums = {"loss", *trainer.metrics}, set(state["totals"]["sums"])
    if state["totals"]["batches"] and measured != sums:
        lines.append(
            f"metrics: the checkpoint is within an epoch that measures {', '.join(sorted(sums))}, this run "
            f"measures {', '.join(sorted(measured))}"
        )
    return lines


def _of_data(train: Any, saved: Any, *, within_epoch: bool) -> list[str]:
    if saved is None:
        return ["data: it is within an epoch and has no position in the data"] if within_epoch else []
    loader = train.loader if isinstance(train, LoaderShard) else train
    if isinstance(loader, DataLoader):
        lines = _refused(lambda: loader._check_state(saved))
        if isinstance(saved, Mapping) and "seed" in saved and saved["seed"] != loader.seed:
            lines.append(f"seed is {saved['seed']} in the state and {loader.seed} here")
        return [f"data: {line}" for line in lines]
    if not hasattr(train, "load_state_dict") and within_epoch:
        return [
            f"data: the checkpoint is within an epoch, and {type(train).__name__} cannot go on there, as a "
            "DataLoader can"
        ]
    return []


def _options(trainer: Trainer, state: Mapping[str, Any]) -> list[str]:
    """Options of the optimizer that differ, but for those that a schedule changes."""
    lines: list[str] = []
    if not isinstance(trainer.optimizer, Optimizer):
        return lines
    ignored = {"params", *(SCHEDULED if trainer.scheduler is not None else ("initial_lr",))}
    groups = trainer.optimizer.param_groups
    # a hook may make other groups of the saved ones when they are loaded: those have nothing to compare
    for number, (group, other) in enumerate(zip(groups, state["optimizer"]["param_groups"], strict=False)):
        for name in group:
            mine, theirs = group[name], other.get(name, group[name])
            if name not in ignored and _plain(mine) != _plain(theirs):
                lines.append(f"{name} {theirs} for {mine}" + (f" in group {number}" if number else ""))
    return lines


def _apply(trainer: Trainer, train: Any, state: Mapping[str, Any]) -> None:
    """Load a state that fits. Where a part refuses it after all, those before it get their own back."""
    parts = [(trainer.scheduler, state["scheduler"]), (trainer.ema, state["ema"])]
    parts.append((trainer.scaler, state.get("scaler")))
    parts.append((trainer.optimizer, state["optimizer"]))
    if hasattr(train, "load_state_dict"):
        parts.append((train, state["data"]))
    # What has no check of ours comes first, so that there is little to take back.
    loading = [(part, saved) for part, saved in parts if part is not None and saved is not None]
    # So does what cannot be taken back come last.
    last = ZeroRedundancyOptimizer
    loading.sort(key=lambda entry: (isinstance(entry[0], last), hasattr(entry[0], "_check_state")))
    undo: list[Callable[[], Any]] = []
    try:
        for part, saved in loading:
            if isinstance(part, ZeroRedundancyOptimizer):  # no process has the state of all
                part.load_state_dict(saved)
                continue
            before = _snapshot(part)
            part.load_state_dict(saved)
            undo.append(lambda part=part, before=before: part.load_state_dict(before))  # type: ignore[misc]
        rows = trainer.history.rows
        trainer.history.restore(state["history"])
        undo.append(lambda: trainer.history.restore(rows))
        trainer.model.load_state_dict(state["model"])
    except BaseException:
        for function in reversed(undo):
            function()
        raise
    default_generator().set_state(state["random"])
    trainer._interrupted.load_state_dict(state["totals"])
    trainer.epoch, trainer.step = state["epoch"], state["step"]


def _snapshot(part: Any) -> Any:
    """The state of a part before it is loaded. Tensors of ours are not copied: loading makes new ones."""
    state = part.state_dict()
    return state if isinstance(part, (Optimizer, EMA)) else copy.deepcopy(state)


def _class_name(part: Any) -> str | None:
    return None if part is None else type(part).__name__


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _plain(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _refused(function: Callable[[], Any]) -> list[str]:
    """The complaint of a check about a state, without the name of its class in front."""
    try:
        function()
    except ArgumentError as error:
        return [str(error).partition("] ")[2] or str(error)]
    return []
