"""Plots of a study: history, importance of hyperparameters, Pareto front (needs matplotlib)."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import optuna
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Target = Callable[[FrozenTrial], float]


def figures(study: Study) -> dict[str, Figure]:
    """Figures by their names: ``history`` and ``importances`` of each value, ``pareto`` of two.

    Notebooks show them. They are pyplot's, to be closed by who asked for them.

    Raises:
        ImportError: matplotlib is not installed.

    Example:
        >>> import dl4all as dl
        >>> def net(s):
        ...     return dl.nn.Linear(s.integer("inputs", 1, 30), 1)
        >>> study = dl.search.run(net, lambda model, _: model.in_features, devices=["cpu"], trials=5, seed=0)
        >>> list(dl.search.plots.figures(study))
        ['history', 'importances']
    """
    from optuna.visualization import matplotlib as plots

    drawn: dict[str, Any] = {}
    with without_advice():
        for number in range(len(study.directions)):
            end = f"_{number}" if len(study.directions) > 1 else ""
            values, losses = targets(study, number)
            name = f"value{end}"
            drawn[f"history{end}"] = plots.plot_optimization_history(study, target=values, target_name=name)
            if len(study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))) > 1:
                drawn[f"importances{end}"] = plots.plot_param_importances(
                    study, target=losses, target_name=name
                )
        if len(study.directions) == 2:
            drawn["pareto"] = plots.plot_pareto_front(study)
    return {name: axes.figure for name, axes in drawn.items()}


@contextlib.contextmanager
def without_advice() -> Iterator[None]:
    """The block in which Optuna's remarks on its own interface are not shown.

    Example:
        >>> import dl4all as dl
        >>> with dl.search.plots.without_advice():
        ...     pass
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        warnings.filterwarnings("ignore", "PedAnovaImportanceEvaluator computes")  # targets are made for that
        warnings.filterwarnings("ignore", "Some regimes for parameter")  # of few trials importance is rough
        yield


def targets(study: Study, number: int) -> tuple[Target | None, Target | None]:
    """One of a study's values, and what is to be small for it; of a single one Optuna knows both.

    Example:
        >>> import dl4all as dl
        >>> import optuna
        >>> dl.search.plots.targets(optuna.create_study(), 0)
        (None, None)
    """
    if len(study.directions) == 1:
        return None, None
    sign = -1 if study.directions[number].name == "MAXIMIZE" else 1
    return lambda trial: trial.values[number], lambda trial: sign * trial.values[number]
