"""Times of calls in turn, and pictures of them: what the pages of the course share."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from statistics import median
from typing import Any

import dl4all as dl
from dl4all.io.picture_file import new_figure, save_figure


def medians(
    calls: Mapping[str, Callable[[], Any]], device: dl.Device, repeat: int, *, least: float = 0.02
) -> dict[str, float]:
    """Milliseconds of each call on a device: medians of rounds in which each has its turn.

    Args:
        calls: by name; each has run once before the first round.
        device: it is waited for.
        repeat: rounds.
        least: seconds that a turn takes at least, by calling again.
    """
    counts = {}
    for name, call in calls.items():
        call()
        device.synchronize()
        start = time.perf_counter()
        call()
        device.synchronize()
        counts[name] = max(1, int(least / max(time.perf_counter() - start, 1e-9)))
    found: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(repeat):
        for name, call in calls.items():
            start = time.perf_counter()
            for _ in range(counts[name]):
                call()
            device.synchronize()
            found[name].append(1e3 * (time.perf_counter() - start) / counts[name])
    return {name: median(times) for name, times in found.items()}


def draw_bars(file: str | None, title: str, unit: str, values: Mapping[str, float]) -> None:
    """Draw values as bars into an image file, if there is one."""
    if file is None:
        return
    figure = new_figure("course", 8, 1 + 0.45 * len(values))
    axes = figure.add_subplot()
    bars = axes.barh(list(values), list(values.values()), color="#4c78a8")
    axes.bar_label(bars, [f"{value:.3g}" for value in values.values()], padding=3, fontsize=8)
    axes.invert_yaxis()
    axes.margins(x=0.12)
    axes.set_xlabel(unit)
    axes.set_title(title, fontsize=9, loc="left", wrap=True)
    save_figure("course", figure, file)


def draw_lines(
    file: str | None, title: str, labels: tuple[str, str], lines: Mapping[str, Mapping[int, float]]
) -> None:
    """Draw lines over sizes, both on logarithmic axes, into an image file, if there is one."""
    if file is None:
        return
    figure = new_figure("course", 8, 3.6)
    axes = figure.add_subplot()
    for name, points in lines.items():
        axes.loglog(list(points), list(points.values()), "o-", base=2, label=name)
    axes.set_xlabel(labels[0])
    axes.set_ylabel(labels[1])
    axes.set_title(title, fontsize=9, loc="left")
    axes.legend(fontsize=8)
    save_figure("course", figure, file)


def gpu(name: str) -> dl.Device:
    """A device that runs shaders: the named one, or the first of Vulkan's for ``auto``."""
    return dl.device("vulkan:0" if name in ("auto", "cpu") else name)
