"""The times of a network's ways to run, as bars."""

from __future__ import annotations

from pathlib import Path

from dl4all.cli.mode_ladder import Rung
from dl4all.io.picture_file import new_figure, save_figure

COLOURS = {"compiled": "#54a24b", "op codes": "#f58518", "graph": "#88d27a"}
PLAIN = "#4c78a8"


def draw(rungs: list[Rung], title: str, file: Path) -> None:
    """Draw them into an image file (SVG, PNG or PDF by the file's suffix).

    Raises:
        ArgumentError: the suffix says no kind of picture.
        BackendMissingError: matplotlib is not installed.
        FileFormatError: the file cannot be written.
    """
    timed = [(rung.name, rung.milliseconds) for rung in rungs if rung.milliseconds is not None]
    figure = new_figure("bench", 8, 1 + 0.45 * len(timed))
    axes = figure.add_subplot()
    names = [name for name, _ in timed]
    bars = axes.barh(names, [ms for _, ms in timed], color=[COLOURS.get(name, PLAIN) for name in names])
    axes.bar_label(bars, [f"{ms:.3g}" for _, ms in timed], padding=3, fontsize=8)
    axes.invert_yaxis()
    axes.margins(x=0.1)
    axes.set_xlabel("ms")
    axes.set_title(title, fontsize=9, loc="left", wrap=True)
    save_figure("bench", figure, file)
