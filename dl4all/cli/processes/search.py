"""``dl4all search``: searches the networks of a script's space for the best ones."""

from __future__ import annotations

import contextlib
import json
import runpy
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dl4all.errors import ArgumentError, Dl4allError

if TYPE_CHECKING:
    from optuna.study import Study
    from optuna.trial import FrozenTrial
    from rich.table import Table

    Target = Callable[[FrozenTrial], float]

ALGORITHMS = ("tpe", "evolution", "reinforce", "random", "nsga2", "gp", "cmaes", "local")
SHOWN = 10
"""Trials in the table while it goes on."""


@click.command()
@click.argument("script", type=click.Path(exists=True, dir_okay=False))
@click.option(
    "--trials", default=50, show_default=True, type=click.IntRange(min=1), help="Of the study in all."
)
@click.option("--algorithm", type=click.Choice(ALGORITHMS), default="tpe", show_default=True)
@click.option("--minimize", is_flag=True, help="The objective is to be small, not large.")
@click.option(
    "--device", "devices", multiple=True, default=["all"], help="One, several by repeating, or all."
)
@click.option("--workers", default=1, show_default=True, type=click.IntRange(min=1), help="For each device.")
@click.option("--storage", help="A file (.db for SQLite), or grpc://HOST:PORT.")
@click.option("--study-name", default="search", show_default=True, help="Of the study in the storage.")
@click.option("--resume", is_flag=True, help="Go on with the study of the storage.")
@click.option(
    "--timeout", type=click.FloatRange(min=0, min_open=True), help="Seconds; no trial begins later."
)
@click.option("--seed", type=int, help="Of the algorithm's random numbers.")
@click.option("--pictures", type=click.Path(file_okay=False), help="A folder for plots (needs dl4all[plot]).")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def search(
    script: str,
    trials: int,
    algorithm: str,
    minimize: bool,
    devices: tuple[str, ...],
    workers: int,
    storage: str | None,
    study_name: str,
    resume: bool,
    timeout: float | None,
    seed: int | None,
    pictures: str | None,
    as_json: bool,
) -> None:
    """Search the networks of SCRIPT for the best ones, on all devices of this machine.

    SCRIPT defines net(s), which makes a network from the hyperparameters that it asks s for, and
    objective(model, trial), which returns a number; or several, with directions = ["maximize", "minimize"].
    """
    from rich.console import Console
    from rich.live import Live

    import dl4all as dl

    names = _names_of(script)
    directions = names.get("directions") or ["minimize" if minimize else "maximize"]
    if pictures is not None:
        _check_plots()
    run: Callable[..., Study] = dl.search.run
    console = Console(stderr=True)
    with Live(console=console, auto_refresh=False, transient=True) as live:

        def show(study: Study, trial: FrozenTrial) -> None:
            if console.is_terminal:
                live.update(_table(study, study.get_trials(deepcopy=False)[-SHOWN:]), refresh=True)
            elif not as_json:
                console.print(_line(trial), highlight=False, markup=False, soft_wrap=True)

        study = run(
            names["net"],
            names["objective"],
            algorithm=algorithm,
            trials=trials,
            directions=directions,
            devices="all" if "all" in devices else devices,
            workers=workers,
            storage=storage,
            study_name=study_name,
            resume=resume,
            timeout=timeout,
            seed=seed,
            callback=show,
        )
    report = _report(study)
    if as_json:
        print(json.dumps(report, indent=2))
    else:
        out = Console()
        out.print(_table(study, study.best_trials, "Best"))
        for name, part in report["importances"].items():
            out.print(f"importance of {name}: {part:.2f}", highlight=False, markup=False)
        for error, count in report["errors"].items():
            out.print(f"{count} trials failed: {error}", highlight=False, markup=False, soft_wrap=True)
    if pictures is not None:
        _draw(study, Path(pictures))
    if not study.best_trials:
        raise ArgumentError("[search] no trial has a value; the errors are above, and in the trials' error")


def _names_of(script: str) -> dict[str, Any]:
    """The names that a script defines.

    Raises:
        ArgumentError: ``net`` or ``objective`` is not among them, or the script raises.
    """
    sys.path.insert(0, str(Path(script).resolve().parent))
    try:
        names = runpy.run_path(script, run_name="search_script")
    except Dl4allError:
        raise
    except Exception as error:
        raise ArgumentError(
            f"[search] {script}: {''.join(traceback.format_exception_only(error))}"
        ) from error
    missing = [name for name in ("net", "objective") if not callable(names.get(name))]
    if missing:
        raise ArgumentError(f"[search] {script} defines no function {' and no '.join(missing)}")
    return names


def _report(study: Study) -> dict[str, Any]:
    """The results, as JSON has them."""
    from optuna.importance import get_param_importances
    from optuna.trial import TrialState

    finished = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    importances: dict[str, float] = {}
    if len(finished) > 1:
        with _without_advice():
            importances = get_param_importances(study, target=_targets(study, 0)[1])
    errors: dict[str, int] = {}
    for trial in study.get_trials(deepcopy=False):
        if "error" in trial.user_attrs:
            last = trial.user_attrs["error"].strip().splitlines()[-1]
            errors[last] = errors.get(last, 0) + 1
    best = study.best_trials if finished else []
    return {
        "trials": {
            state.name.lower(): sum(t.state == state for t in study.get_trials(deepcopy=False))
            for state in TrialState
        },
        "best": [{"number": t.number, "values": t.values, "params": t.params, **t.user_attrs} for t in best],
        "importances": importances,
        "errors": errors,
    }


def _cells(trial: FrozenTrial) -> list[str]:
    """Number, state, values, device, milliseconds of a call if known, seconds, hyperparameters."""
    known = trial.user_attrs
    values = ", ".join(f"{value:.4g}" for value in trial.values or ())
    milliseconds = known.get("costs", {}).get("milliseconds")
    return [
        str(trial.number),
        "infeasible" if "infeasible" in known else trial.state.name.lower(),
        values or "-",
        str(known.get("device", "-")),
        "-" if milliseconds is None else f"{milliseconds:.3f}",
        f"{known['seconds']:.1f}" if "seconds" in known else "-",
        ", ".join(f"{name}={_short(value)}" for name, value in trial.params.items()),
    ]


def _short(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _line(trial: FrozenTrial) -> str:
    number, state, value, device, _, seconds, params = _cells(trial)
    return f"trial {number}: {state}, value {value}, {device}, {seconds} s, {params}"


def _table(study: Study, trials: Sequence[FrozenTrial], title: str = "Trials") -> Table:
    from rich.table import Table

    table = Table(title=f"{title} of {study.study_name}")
    for heading in ("trial", "state", "value", "device", "ms", "s"):
        table.add_column(heading, no_wrap=True)
    table.add_column("hyperparameters")
    for trial in trials:
        table.add_row(*_cells(trial))
    return table


def _check_plots() -> None:
    from importlib.util import find_spec

    if find_spec("matplotlib") is None:
        raise ArgumentError("[search] --pictures needs matplotlib: pip install 'dl4all[plot]'")


def _draw(study: Study, folder: Path) -> None:
    """Write the history, the importances, and the Pareto front of two objectives, as pictures."""
    import matplotlib as mpl
    from optuna.visualization import matplotlib as plots

    mpl.use("Agg")
    folder.mkdir(parents=True, exist_ok=True)
    with _without_advice():
        drawn: dict[str, Any] = {}
        for number in range(len(study.directions)):
            end = f"_{number}" if len(study.directions) > 1 else ""
            values, losses = _targets(study, number)
            name = f"value{end}"
            drawn[f"history{end}"] = plots.plot_optimization_history(study, target=values, target_name=name)
            drawn[f"importances{end}"] = plots.plot_param_importances(study, target=losses, target_name=name)
        if len(study.directions) == 2:
            drawn["pareto"] = plots.plot_pareto_front(study)
    for name, axes in drawn.items():
        axes.figure.savefig(folder / f"{name}.png", bbox_inches="tight")
    mpl.pyplot.close("all")


@contextlib.contextmanager
def _without_advice() -> Iterator[None]:
    """Optuna's remarks on its own interface are not for those who use the command."""
    import optuna

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        warnings.filterwarnings("ignore", "PedAnovaImportanceEvaluator computes")  # targets are made for that
        yield


def _targets(study: Study, number: int) -> tuple[Target | None, Target | None]:
    """One of a study's values, and what is to be small for it; of a single one Optuna knows both."""
    if len(study.directions) == 1:
        return None, None
    sign = -1 if study.directions[number].name == "MAXIMIZE" else 1
    return lambda trial: trial.values[number], lambda trial: sign * trial.values[number]
