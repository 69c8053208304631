"""Trials of a search on the terminal: a table that changes while it goes on, or a line for each."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from optuna.study import Study
    from optuna.trial import FrozenTrial
    from rich.table import Table

    Show = Callable[[Study, FrozenTrial], None]

SHOWN = 10
"""Trials in the table while it goes on."""


@contextlib.contextmanager
def live_trials(quiet: bool) -> Iterator[Show]:
    """A callback of a search that shows its trials.

    Args:
        quiet: print no lines where there is no terminal.
    """
    from rich.console import Console
    from rich.live import Live

    console = Console(stderr=True)
    with Live(console=console, auto_refresh=False, transient=True) as live:

        def show(study: Study, trial: FrozenTrial) -> None:
            if console.is_terminal:
                live.update(trials_table(study, study.get_trials(deepcopy=False)[-SHOWN:]), refresh=True)
            elif not quiet:
                console.print(_line(trial), highlight=False, markup=False, soft_wrap=True)

        yield show


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


def trials_table(study: Study, trials: Sequence[FrozenTrial], title: str = "Trials") -> Table:
    """Trials as a table."""
    from rich.table import Table

    table = Table(title=f"{title} of {study.study_name}")
    for heading in ("trial", "state", "value", "device", "ms", "s"):
        table.add_column(heading, no_wrap=True)
    table.add_column("hyperparameters")
    for trial in trials:
        table.add_row(*_cells(trial))
    return table
