"""The search itself: trials in this process, or in one for each device."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import optuna
from optuna.pruners import BasePruner
from optuna.samplers import BaseSampler
from optuna.storages import BaseStorage
from optuna.study import Study
from optuna.trial import FrozenTrial, Trial, TrialState

from dl4all.errors import ArgumentError, ConfigError
from dl4all.scheduler.device.current import device as open_device
from dl4all.scheduler.streams.group import DeviceGroup
from dl4all.search import storage as storages
from dl4all.search.samplers import sampler_of
from dl4all.search.space import Net, Space
from dl4all.search.trial_outcome import (
    FailedTrial,
    FinishedTrial,
    InfeasibleTrial,
    Objective,
    TrialOutcome,
    computed,
)
from dl4all.search.worker_processes import WorkerProcesses

DEVICE, SECONDS, ERROR, COSTS = "device", "seconds", "error", "costs"
"""Attributes of a trial: where it was computed, how long, why it failed, and what its network costs."""
INFEASIBLE = "infeasible"
MOST_INFEASIBLE = 300
"""Networks above the limits one after the other after which a search without any other is given up."""


def run(
    net: Net | Space,
    objective: Objective,
    *,
    algorithm: str | BaseSampler = "tpe",
    trials: int = 50,
    direction: str = "maximize",
    directions: Sequence[str] | None = None,
    devices: str | Sequence[str] = "all",
    workers: int = 1,
    storage: str | os.PathLike[str] | BaseStorage | None = None,
    study_name: str = "search",
    pruner: BasePruner | None = None,
    timeout: float | None = None,
    seed: int | None = None,
    resume: bool = False,
    callback: Callable[[Study, FrozenTrial], None] | None = None,
    first: Sequence[Mapping[str, Any]] = (),
) -> Study:
    """Search a space of networks for the best ones, on all devices of this machine.

    Each trial makes a network on its device and gives it to `objective`. With several devices or workers
    trials run side by side, each worker in a process of its own: the two functions are sent there with what
    they refer to. A worker that dies is replaced, and its trial, marked as failed, tried again up to three
    times. An objective that raises, or returns no number, lets its trial fail; the search goes on.

    Several machines that name one storage, such as ``"grpc://host:port"``, make the trials of one study.

    Args:
        net: called with :class:`dl4all.search.Choices`, returns a network; or the :class:`Space` of it.
        objective: called with the network and Optuna's trial (``params``, ``report``, ``should_prune``,
            ``set_user_attr``); returns a number, or one for each direction.
        algorithm: ``"tpe"``, ``"evolution"``, ``"reinforce"``, ``"random"``, ``"nsga2"``, ``"gp"``,
            ``"cmaes"`` or ``"local"``, or one of Optuna's samplers.
        trials: of the study in all, those of an earlier search that it goes on with included. Networks above
            the limits of the space, and trials whose process died, do not count.
        direction: ``"maximize"`` or ``"minimize"``.
        directions: one for each number, if there are several.
        devices: names, or ``"all"`` for every device of this machine.
        workers: processes for each device; with one device and one worker trials run in this process.
        storage: a file (SQLite's by the ending ``.db``), a URL, or None for memory.
        study_name: of the study within the storage.
        pruner: one of Optuna's, which ends hopeless trials; none by default.
        timeout: seconds after which no trial begins.
        seed: of the algorithm's random numbers.
        resume: go on with the study that the storage has.
        callback: called after each trial with the study and the trial.
        first: values of hyperparameters that are tried before the algorithm draws any, those of a network
            in each; what is not among them is drawn.

    Returns:
        Optuna's study: ``best_params``, ``best_trials``, ``trials``. A trial's ``user_attrs`` have its
        device, seconds, costs where the space has limits, and the error if it failed.

    Raises:
        ArgumentError: a setting is out of its range.
        ConfigError: the space is empty, or no network meets its limits.
        FileFormatError: the storage cannot be read.

    Example:
        >>> import dl4all as dl
        >>> def net(s):
        ...     return dl.nn.Linear(s.integer("inputs", 1, 30), 1)
        >>> def objective(model, trial):
        ...     return -abs(model.in_features - 17)
        >>> dl.search.run(net, objective, devices=["cpu"], trials=40, seed=0).best_params
        {'inputs': 17}
    """
    aims = _checked(direction, directions, trials, workers, timeout)
    space = net if isinstance(net, Space) else Space(net)
    places = _places(devices, workers)
    for name in {name for values in first for name in values} - space.dimensions.keys():
        raise ArgumentError(f"[search] first: {name!r} is no hyperparameter of the space")
    sampler_of(algorithm, seed, len(aims))  # an error of it comes before there is a study
    study = storages.study_of(storages.opened(storage), study_name, aims, pruner, resume)
    storages.retry_lost(study)
    if not study.get_trials(deepcopy=False):
        for values in first:
            study.enqueue_trial(dict(values))
    # A search that goes on must not draw once more what was drawn already.
    study.sampler = sampler_of(algorithm, None if seed is None else seed + len(study.trials), len(aims))
    try:
        with storages.searching() as name:
            work = Search(study, name, trials, time.monotonic() + (timeout or float("inf")), callback)
            if len(places) == 1:
                _run_here(work, space, objective, places[0])
            else:
                _run_in_processes(work, space, objective, places)
    except optuna.exceptions.StorageInternalError as error:
        raise storages.unreadable(str(storage), error) from error
    return study


@dataclass
class Search:
    """A study that is under way."""

    study: Study
    name: str
    trials: int
    until: float
    callback: Callable[[Study, FrozenTrial], None] | None
    infeasible: list[dict[str, float]] = field(default_factory=list)
    """Excess of the networks that were too large, as long as there was no other."""

    def left(self) -> int:
        """Number of trials that are still to begin."""
        known = self.study.get_trials(deepcopy=False)
        return max(0, self.trials - sum(t.state == TrialState.RUNNING or counts(t) for t in known))

    def next(self, device: str) -> Trial | None:
        """A new trial, unless there are enough."""
        if time.monotonic() >= self.until or not self.left():
            return None
        trial = self.study.ask()
        trial.set_user_attr(storages.SEARCH, self.name)
        trial.set_user_attr(DEVICE, device)
        return trial

    def finish(self, trial: Trial, outcome: TrialOutcome) -> None:
        """Store what came of a trial.

        Raises:
            ConfigError: no network meets the limits.
        """
        attributes: dict[str, Any] = {SECONDS: outcome.seconds}
        if outcome.costs:
            attributes[COSTS] = outcome.costs
        values, state = None, TrialState.PRUNED
        match outcome:
            case FinishedTrial():
                values, state = list(outcome.values), TrialState.COMPLETE
            case InfeasibleTrial():
                attributes[INFEASIBLE] = True
            case FailedTrial():
                attributes[ERROR], state = outcome.error, TrialState.FAIL
        if not self.study.get_trials(deepcopy=False)[trial.number].state.is_finished():
            for name, value in attributes.items():
                trial.set_user_attr(name, value)
            for name, excess in outcome.excess.items():
                trial.set_constraint(name, excess)
            storages.tell(self.study, trial.number, values, state)
        self._told(trial.number)
        self._weigh(outcome)

    def lost(self, trial: Trial) -> None:
        """Store that the process of a trial died; it is tried again."""
        frozen = self.study.get_trials(deepcopy=False)[trial.number]
        if not frozen.state.is_finished():
            storages.retry(self.study, frozen)
        self._told(trial.number)

    def _told(self, number: int) -> None:
        if self.callback is not None:
            self.callback(self.study, self.study.get_trials(deepcopy=False)[number])

    def _weigh(self, outcome: TrialOutcome) -> None:
        """End the search where no network is found any more that meets the limits.

        Raises:
            ConfigError: none ever did.
        """
        if not isinstance(outcome, InfeasibleTrial):
            self.infeasible.clear()
            return
        self.infeasible.append(outcome.excess)
        if len(self.infeasible) < MOST_INFEASIBLE:
            return
        least = min(self.infeasible, key=lambda excess: max(excess.values()))
        worst = max(least, key=lambda name: least[name])
        reason = (
            f"[search] none of the last {len(self.infeasible)} networks meets the limits of the space; the "
            f"nearest one has {1 + least[worst]:.2f} times the {worst} that it may have"
        )
        if not any(map(counts, self.study.get_trials(deepcopy=False))):
            raise ConfigError(reason)
        warnings.warn(f"{reason}. The search ends", stacklevel=2)
        self.until = 0.0


def counts(trial: FrozenTrial) -> bool:
    """Whether a trial is one of those that a search is to make; those of dead processes are made again."""
    attributes = trial.user_attrs
    if trial.state == TrialState.FAIL and ERROR not in attributes:
        return bool(attributes.get(storages.RETRIES, 0) == storages.MOST_RETRIES)
    return trial.state.is_finished() and INFEASIBLE not in attributes


def _run_here(search: Search, space: Space, objective: Objective, device: str) -> None:
    while (trial := search.next(device)) is not None:
        try:
            outcome = computed(space, objective, trial, device, len(search.study.directions))
        except BaseException:
            search.lost(trial)
            raise
        search.finish(trial, outcome)


def _run_in_processes(search: Search, space: Space, objective: Objective, devices: Sequence[str]) -> None:
    devices = devices[: search.left()]
    with WorkerProcesses(space, objective, devices, len(search.study.directions)) as processes:
        try:
            while True:
                for worker in processes.idle():
                    if (trial := search.next(worker.device)) is None:
                        break
                    worker.begin(trial)
                if not processes.is_busy():
                    return
                for trial, outcome in processes.wait():
                    if outcome is None:
                        search.lost(trial)
                    else:
                        search.finish(trial, outcome)
        except BaseException:
            for trial in processes.kill():
                search.lost(trial)
            raise


def _places(devices: str | Sequence[str], workers: int) -> list[str]:
    """The device of each worker."""
    if isinstance(devices, str):
        names = (
            [str(d) for d in DeviceGroup("all").alive] if devices == "all" else [str(open_device(devices))]
        )
    else:
        names = [str(open_device(name)) for name in devices]
    if not names:
        raise ArgumentError("[search] expected at least one device, got none")
    return names * workers


def _checked(
    direction: str, directions: Sequence[str] | None, trials: int, workers: int, timeout: float | None
) -> list[storages.Direction]:
    aims = [direction] if directions is None else list(directions)
    if not aims or not set(aims) <= {"maximize", "minimize"}:
        raise ArgumentError(f"[search] directions are 'maximize' and 'minimize', got {aims}")
    if trials < 1 or workers < 1 or (timeout is not None and timeout <= 0):
        raise ArgumentError(
            f"[search] expected at least one trial and one worker, and time for them, got trials={trials}, "
            f"workers={workers}, timeout={timeout}"
        )
    return ["maximize" if aim == "maximize" else "minimize" for aim in aims]
