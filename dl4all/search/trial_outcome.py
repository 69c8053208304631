"""One trial: a network is made, weighed, and given to the objective; whatever happens has an outcome."""

from __future__ import annotations

import math
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.trial import Trial

from dl4all.nn.module import Module
from dl4all.scheduler.device.current import default_device
from dl4all.search.choices import Draw
from dl4all.search.limits import CostLimits, costs
from dl4all.search.space import Space

Objective = Callable[[Any, Trial], Any]


@dataclass(kw_only=True)
class TrialOutcome:
    """The outcome of a trial."""

    seconds: float = 0.0
    costs: dict[str, float] = field(default_factory=dict)
    excess: dict[str, float] = field(default_factory=dict)
    """For each limit by how much the network is above it, as a part of the limit."""


@dataclass(kw_only=True)
class FinishedTrial(TrialOutcome):
    """A trial with its value, or its values."""

    values: tuple[float, ...]


@dataclass(kw_only=True)
class PrunedTrial(TrialOutcome):
    """A trial that its pruner ended."""


@dataclass(kw_only=True)
class InfeasibleTrial(TrialOutcome):
    """A network above the limits of its space."""


@dataclass(kw_only=True)
class FailedTrial(TrialOutcome):
    """A trial without a value."""

    error: str


def computed(space: Space, objective: Objective, trial: Trial, device: str, objectives: int) -> TrialOutcome:
    """Compute a trial on a device, which is the default one meanwhile."""
    begun = time.monotonic()
    try:
        with default_device(device):
            outcome = _computed(space, objective, trial, device, objectives)
    except optuna.TrialPruned:
        outcome = PrunedTrial()
    except Exception as error:  # noqa: BLE001  # a network that fails is an answer, and the search goes on
        outcome = FailedTrial(error="".join(traceback.format_exception(error)))
    outcome.seconds = time.monotonic() - begun
    return outcome


def _computed(space: Space, objective: Objective, trial: Trial, device: str, objectives: int) -> TrialOutcome:
    made = space.make({}, suggested(trial))
    found, excess = _weighed(made.network, made.limits, device)
    if any(part > 0 for part in excess.values()):
        return InfeasibleTrial(costs=found, excess=excess)
    values = _numbers(objective(made.network, trial), objectives)
    return FinishedTrial(values=values, costs=found, excess=excess)


def suggested(trial: Trial) -> Draw:
    """Draws that a trial's sampler makes."""

    def draw(name: str, distribution: BaseDistribution) -> Any:
        match distribution:
            case CategoricalDistribution():
                return trial.suggest_categorical(name, distribution.choices)
            case IntDistribution(low=low, high=high, step=step, log=log):
                return trial.suggest_int(name, low, high, step=step, log=log)
            case FloatDistribution(low=low, high=high, step=step, log=log):
                return trial.suggest_float(name, low, high, step=step, log=log)
            case _:
                raise TypeError(f"[search] {name} has an unknown distribution: {distribution}")

    return draw


def _weighed(
    network: Any, limits: Sequence[CostLimits], device: str
) -> tuple[dict[str, float], dict[str, float]]:
    """Costs of a network, and by how much it is above its limits."""
    found: dict[str, float] = {}
    excess: dict[str, float] = {}
    for limit in limits:
        if not isinstance(network, Module):
            raise TypeError(f"[search] limits are for modules, the space made a {type(network).__name__}")
        found |= costs(network, limit.inputs, device=device, training=limit.training)
        excess |= {name: found[name] / most - 1 for name, most in limit.most.items()}
    return found, excess


def _numbers(result: Any, count: int) -> tuple[float, ...]:
    """The objective's values.

    Raises:
        ValueError: it returned something else than so many numbers.
    """
    parts = result if isinstance(result, (tuple, list)) else (result,)
    try:
        values = tuple(float(part) for part in parts)
    except (TypeError, ValueError):
        values = ()
    if len(values) != count or any(map(math.isnan, values)):
        wanted = "a number" if count == 1 else f"{count} numbers"
        raise ValueError(f"[search] the objective is to return {wanted}, it returned {result!r}")
    return values
