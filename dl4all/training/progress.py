"""The progress bar of a training run; in a file or a pipe, a line for each epoch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich import get_console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


def batch_count(train: Any) -> int | None:
    """The number of batches of an epoch; None where only its end will tell.

    >>> batch_count([1, 2]), batch_count(iter([1, 2]))
    (2, None)
    """
    try:
        return len(train)
    except TypeError:
        return None


class Bar:
    """Shows how many batches are done and the last epoch's numbers; without `progress` it shows nothing.

    Where nobody watches a bar grow, as in a log file, it prints a line at the end of each epoch instead.
    """

    def __init__(self, progress: Progress | None, train: Any, epochs: int, done: int) -> None:
        self._progress, self._epochs = progress, epochs
        self._batches = batch_count(train)
        if progress is not None:
            total = None if self._batches is None else self._batches * epochs
            completed = 0 if self._batches is None else self._batches * done
            self._task = progress.add_task(self._name(done), total=total, completed=completed, note="")

    def batch(self) -> None:
        """One more batch is done."""
        if self._progress is not None:
            self._progress.advance(self._task)

    def epoch(self, done: int, row: dict[str, Any]) -> None:
        """An epoch is complete.

        Args:
            done: how many epochs are complete.
            row: the numbers of the last one.
        """
        if self._progress is not None:
            note = "  ".join(f"{name} {value:.4g}" for name, value in row.items() if name != "epoch")
            if self._progress.disable:
                print(f"epoch {done}/{self._epochs}  {note}", flush=True)
            self._progress.update(self._task, description=self._name(done), note=note)
            if self._batches is not None:  # a resumed epoch began in its middle
                self._progress.update(self._task, completed=self._batches * done)

    def _name(self, done: int) -> str:
        return f"epoch {min(done + 1, self._epochs)}/{self._epochs}"


@contextmanager
def bar(shown: bool, train: Any, epochs: int, done: int) -> Iterator[Bar]:
    """A bar for as long as the block runs.

    Args:
        shown: whether the bar is shown.
        train: the batches of an epoch; without ``len()`` the bar has no end.
        epochs, done: how many epochs there are, and how many are complete.
    """
    if not shown:
        yield Bar(None, train, epochs, done)
        return
    columns = TextColumn("{task.description}"), BarColumn(20), MofNCompleteColumn(), TimeRemainingColumn()
    console = get_console()
    watched = console.is_terminal or console.is_jupyter
    with Progress(
        *columns, TextColumn("{task.fields[note]}"), console=console, disable=not watched
    ) as progress:
        yield Bar(progress, train, epochs, done)
