"""History of a training run: a row of numbers for each epoch, as lines of JSON and as curves."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from dl4all.errors import ArgumentError, BackendMissingError
from dl4all.io.files import naming

Row = dict[str, Any]


class History:
    """Rows of numbers by name, one for each epoch: ``loss``, ``val_loss``, ``accuracy``, ...

    Args:
        file: each row is appended to this file at once, as a line of JSON.

    Example:
        >>> import dl4all as dl
        >>> history = dl.training.History()
        >>> history.add({"epoch": 0, "loss": 0.5})
        >>> history["loss"]
        [0.5]
    """

    def __init__(self, file: str | Path | None = None) -> None:
        self.rows: list[Row] = []
        self._file = None if file is None else Path(file)
        self._incomplete = False  # the file may lack rows, or end within one

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, name: str) -> list[float]:
        """A column: the value of each epoch that has one."""
        return [row[name] for row in self.rows if name in row]

    def add(self, row: Row) -> None:
        """Add an epoch.

        Raises:
            OSError: the file cannot be written; the row is kept, and written with the next one.
        """
        self.rows.append(row)
        if self._file is None:
            return
        if self._incomplete:
            self._write()
            return
        self._incomplete = True
        self._file.parent.mkdir(parents=True, exist_ok=True)
        with naming(self._file), self._file.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(row) + "\n")
        self._incomplete = False

    def write_to(self, file: Path | None) -> None:
        """Write all rows to this file from the next one on, or none."""
        if file != self._file:
            self._file, self._incomplete = file, True

    def restore(self, rows: list[Row]) -> None:
        """Replace all rows, in the file too, which may have more of them from a run that was killed.

        Raises:
            OSError: the file cannot be written; it is unchanged, and so are the rows.
        """
        before, self.rows = self.rows, list(rows)
        try:
            self._write()
        except BaseException:
            self.rows = before
            raise

    def _write(self) -> None:
        """Write the file anew."""
        if self._file is not None:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            part = self._file.with_name(f".{self._file.name}.part")
            with naming(self._file):
                part.write_text("".join(json.dumps(row) + "\n" for row in self.rows), encoding="utf-8")
                part.replace(self._file)
            self._incomplete = False

    def best(self, name: str, rises: bool = False) -> int | None:
        """The index of the row with the lowest (or highest) value of a column; None if no row has a value."""
        sign = -1.0 if rises else 1.0
        values = [
            (sign * row[name], i) for i, row in enumerate(self.rows) if math.isfinite(row.get(name, math.nan))
        ]
        return min(values)[1] if values else None

    def plot(self, file: str | Path, names: tuple[str, ...] = ()) -> None:
        """Draw curves over the epochs into an image file (PNG, SVG or PDF by the file's suffix).

        Args:
            file: the image file.
            names: the columns to draw; by default all, losses in one half and the others in the other.

        Raises:
            ArgumentError: there is nothing to draw.
            BackendMissingError: matplotlib is not installed.
        """
        columns = [name for name in dict.fromkeys(key for row in self.rows for key in row) if name != "epoch"]
        selected = [name for name in columns if not names or name in names]
        if not selected:
            raise ArgumentError(
                f"[History] no epoch has any of {names or 'the columns'}; there are {columns}"
            )
        try:
            from matplotlib.figure import Figure  # not pyplot, which looks for a screen
        except ImportError:
            raise BackendMissingError("[History] drawing needs matplotlib: pip install matplotlib") from None
        losses = [name for name in selected if "loss" in name]
        halves = [half for half in (losses, [name for name in selected if name not in losses]) if half]
        figure = Figure(figsize=(5 * len(halves), 4), layout="constrained")
        for index, half in enumerate(halves, 1):
            axes = figure.add_subplot(1, len(halves), index)
            for name in half:
                rows = [row for row in self.rows if name in row]
                axes.plot([row["epoch"] for row in rows], [row[name] for row in rows], label=name)
            axes.set_xlabel("epoch")
            axes.legend()
        figure.savefig(file)
