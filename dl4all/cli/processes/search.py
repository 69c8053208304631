"""``dl4all search``: searches the networks of a script's space for the best ones."""

from __future__ import annotations

import json
import runpy
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dl4all.cli.processes.trials import live_trials, trials_table
from dl4all.errors import ArgumentError, Dl4allError
from dl4all.lazy_names import install_command

if TYPE_CHECKING:
    from optuna.study import Study

ALGORITHMS = ("tpe", "evolution", "reinforce", "random", "nsga2", "gp", "cmaes", "local")


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
@click.option("--pictures", type=click.Path(file_okay=False), help="A folder for plots (needs matplotlib).")
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

    import dl4all as dl

    names = _names_of(script)
    directions = names.get("directions") or ["minimize" if minimize else "maximize"]
    if pictures is not None:
        _check_plots()
    run: Callable[..., Study] = dl.search.run
    with live_trials(as_json) as show:
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
        out.print(trials_table(study, study.best_trials, "Best"))
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

    from dl4all.search.plots import targets, without_advice

    finished = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    importances: dict[str, float] = {}
    if len(finished) > 1:
        with without_advice():
            importances = get_param_importances(study, target=targets(study, 0)[1])
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


def _check_plots() -> None:
    from importlib.util import find_spec

    if find_spec("matplotlib") is None:
        raise ArgumentError(f"[search] --pictures needs matplotlib: {install_command('plot')}")


def _draw(study: Study, folder: Path) -> None:
    """Write the history, the importances, and the Pareto front of two objectives, as pictures."""
    import matplotlib as mpl

    from dl4all.search.plots import figures

    mpl.use("Agg")
    folder.mkdir(parents=True, exist_ok=True)
    for name, figure in figures(study).items():
        figure.savefig(folder / f"{name}.png", bbox_inches="tight")
    mpl.pyplot.close("all")
