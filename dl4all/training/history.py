"""What a training run measured: a row for each epoch, as lines of JSON and as curves."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from dl4all.errors import ArgumentError, BackendMissingError

Row = dict[str, Any]


class History:
    """Rows of numbers by name, one for each epoch: ``loss``, ``val_loss``, ``accuracy``, ...

    Args:
        file: rows are appended to this file as they come, a line of JSON each.
    """

    def __init__(self, file: str | Path | None = None) -> None:
        self.rows: list[Row] = []
        self._file = None if file is None else Path(file)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, name: str) -> list[float]:
        """A column: the value of each epoch that has one."""
        return [row[name] for row in self.rows if name in row]

    def add(self, row: Row) -> None:
        """Note an epoch."""
        self.rows.append(row)
        if self._file is not None:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            with self._file.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps(row) + "\n")

    def restore(self, rows: list[Row]) -> None:
        """Begin with these rows; the file has no others afterwards, whatever a killed run left in it."""
        self.rows = list(rows)
        if self._file is not None:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            part = self._file.with_name(f".{self._file.name}.part")
            part.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
            part.replace(self._file)

    def best(self, name: str, rises: bool = False) -> int | None:
        """The number of the row that has the lowest (or highest) value of a column; None if none has one."""
        sign = -1.0 if rises else 1.0
        found = [
            (sign * row[name], i) for i, row in enumerate(self.rows) if math.isfinite(row.get(name, math.nan))
        ]
        return min(found)[1] if found else None

    def plot(self, file: str | Path, names: tuple[str, ...] = ()) -> None:
        """Draw curves over the epochs into a picture (PNG, SVG or PDF by the file's suffix).

        Args:
            names: the columns; by default all of them, losses in one half and the others in another.

        Raises:
            ArgumentError: there is nothing to draw.
            BackendMissingError: matplotlib is not installed.
        """
        columns = [name for name in dict.fromkeys(key for row in self.rows for key in row) if name != "epoch"]
        wanted = [name for name in columns if not names or name in names]
        if not wanted:
            raise ArgumentError(
                f"[History] no epoch has any of {names or 'the columns'}; there are {columns}"
            )
        try:
            from matplotlib.figure import Figure  # without pyplot, which looks for a screen
        except ImportError:
            raise BackendMissingError(
                "[History] drawing needs matplotlib: pip install 'dl4all[plot]'"
            ) from None
        losses = [name for name in wanted if "loss" in name]
        halves = [half for half in (losses, [name for name in wanted if name not in losses]) if half]
        figure = Figure(figsize=(5 * len(halves), 4), layout="constrained")
        for place, half in enumerate(halves):
            axes = figure.add_subplot(1, len(halves), place + 1)
            for name in half:
                rows = [row for row in self.rows if name in row]
                axes.plot([row["epoch"] for row in rows], [row[name] for row in rows], label=name)
            axes.set_xlabel("epoch")
            axes.legend()
        figure.savefig(file)
