"""A report as a picture: what each unit does over time, and where the program stands under its roofline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dl4all.graph.accelerator.model import UNITS, Hardware, Unit
from dl4all.graph.accelerator.timeline import Phase
from dl4all.io.picture_file import new_figure, save_figure

COLOURS = ("#4c78a8", "#f58518", "#54a24b", "#e45756", "#72b7b2", "#eeca3b", "#b279a2", "#9d755d", "#bab0ac")
IDLE = "#e8e8e8"
COLUMNS = 500  # of the timeline


def draw(
    file: str | Path,
    title: str,
    phases: Sequence[Phase],
    cycles: int,
    hardware: Hardware,
    roofline: Mapping[str, Any],
) -> None:
    """Draw the timeline and the roofline into an image file (SVG, PNG or PDF by the file's suffix).

    Raises:
        ArgumentError: the suffix says no kind of picture.
        BackendMissingError: matplotlib is not installed.
        FileFormatError: the file cannot be written.
    """
    figure = new_figure("emulate", 11, 3.6)
    left, right = figure.subplots(1, 2, width_ratios=(3, 1))
    _draw_timeline(left, phases, cycles)
    _draw_roofline(right, hardware, roofline)
    figure.suptitle(title, fontsize=9, x=0.01, ha="left")
    save_figure("emulate", figure, file)


def _draw_timeline(axes: Any, phases: Sequence[Phase], cycles: int) -> None:
    """A row for each unit, as high as the share of the time in which it works, by op."""
    ops = list(dict.fromkeys(phase.op for phase in phases))
    colours = {op: COLOURS[number % len(COLOURS)] for number, op in enumerate(ops)}
    edges = np.linspace(0, max(cycles, 1), COLUMNS + 1)
    busy = {unit: sum(phase.busy for phase in phases if phase.unit == unit) for unit in UNITS}
    for row, unit in enumerate(UNITS):
        axes.fill_between(edges[[0, -1]], row - 0.4, row + 0.4, color=IDLE, linewidth=0)
        bottom = np.zeros(COLUMNS + 1)
        for op in ops:
            top = bottom + _busy_shares(phases, unit, op, edges)
            if (top > bottom).any():
                axes.fill_between(
                    edges, row + 0.4 - 0.8 * bottom, row + 0.4 - 0.8 * np.minimum(top, 1), step="post",
                    color=colours[op], linewidth=0,
                )  # fmt: skip
            bottom = top
    axes.set_yticks(range(len(UNITS)), [f"{unit}\n{busy[unit] / edges[-1]:.0%}" for unit in UNITS])
    axes.invert_yaxis()
    axes.set_xlim(0, edges[-1])
    axes.set_xlabel("cycles")
    shown = [axes.plot([], [], color=colours[op], linewidth=5, label=op)[0] for op in ops]
    axes.legend(
        handles=shown, fontsize=7, loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=6, frameon=False
    )


def _busy_shares(
    phases: Sequence[Phase], unit: Unit, op: str, edges: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """The share of each column's time in which a unit works for an op, and the last one once more."""
    busy = np.zeros(len(edges))
    for phase in phases:
        if phase.unit == unit and phase.op == op and phase.end > phase.start:
            inside = np.clip(edges, phase.start, phase.end)
            busy[:-1] += np.diff(inside) * min(phase.busy / (phase.end - phase.start), 1.0)
    busy[-1] = busy[-2]
    share: npt.NDArray[np.float64] = busy / (edges[1] - edges[0])
    return share


def _draw_roofline(axes: Any, hardware: Hardware, roofline: Mapping[str, Any]) -> None:
    bandwidth, peak = hardware.dram_bytes_per_cycle, float(hardware.array[0] * hardware.array[1])
    intensity = roofline["intensity"]
    low, ridge = min(intensity, peak / bandwidth) / 8, peak / bandwidth
    high = max(intensity, ridge) * 8
    axes.loglog([low, ridge, high], [low * bandwidth, peak, peak], color="#4c78a8")
    axes.loglog([intensity], [max(roofline["achieved"], 1e-9)], "o", color="#e45756")
    axes.set_xlabel("multiply-adds for a byte of DRAM")
    axes.set_ylabel("multiply-adds a cycle")
