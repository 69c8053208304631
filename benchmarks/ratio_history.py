"""Measure a few benchmarks, add their ratios to a history, and show how they have gone.

    python benchmarks/ratio_history.py [--folder build/benchmarks] [--device NAME ...] [--show-only]

A ratio is a time of dl4all over PyTorch's in the same run, on the CPU; less is better. The folder gets
``ratios.jsonl``, to which each run adds a line for each ratio with date, commit and machine, and from all of
its lines ``trend.md`` and ``trend.png``. Where ``GITHUB_STEP_SUMMARY`` names a file, as on GitHub, the table
is added to it. A busy machine is refused. Takes some minutes on two cores; needs PyTorch and matplotlib.
"""

from __future__ import annotations

import datetime
import json
import os
import statistics
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import click

HERE = Path(__file__).resolve().parent
RECENT = 10  # ratios that the latest one is compared with
Ratios = dict[str, float]


class Entry(NamedTuple):
    """A line of the history."""

    date: str
    commit: str
    machine: str
    name: str
    ratio: float


# ---- what is measured ----------------------------------------------------------------------------------


def resnet18(found: Mapping[str, Any]) -> Ratios:
    """Times of an image on each device over PyTorch's."""
    times = {name: taken["median"] for name, taken in found["milliseconds_per_image"].items()}
    baseline = times.pop("PyTorch CPU")
    return {name: taken / baseline for name, taken in times.items()}


def training(found: Mapping[str, Any]) -> Ratios:
    """Times of a training step, by network and device, over PyTorch's."""
    return {
        f"{case} {name}": taken / times["pytorch"]
        for case, times in found.items()
        for name, taken in times.items()
        if name != "pytorch"
    }


def optimizers(found: Mapping[str, Any]) -> Ratios:
    """Times of an optimizer's step over PyTorch's."""
    return training({case: {name: spent["ms"] for name, spent in of.items()} for case, of in found.items()})


class Benchmark(NamedTuple):
    """A script of this folder that prints JSON, its arguments, and which ratios that holds."""

    arguments: tuple[str, ...]
    ratios: Callable[[Mapping[str, Any]], Ratios]


BENCHMARKS = {
    "resnet18": Benchmark(("--repeat", "7"), resnet18),
    "training": Benchmark(("--case", "mlp", "--case", "cnn", "--case", "gpt", "--repeat", "9"), training),
    "optimizers": Benchmark(("--repeat", "9"), optimizers),
}


def measure(devices: tuple[str, ...]) -> Ratios:
    """Run each benchmark in a process of its own.

    Raises:
        click.ClickException: one of them failed.
    """
    found: Ratios = {}
    chosen = [word for device in devices for word in ("--device", device)]
    for name, benchmark in BENCHMARKS.items():
        command = [sys.executable, str(HERE / f"{name}.py"), *benchmark.arguments, *chosen, "--json"]
        print(f"{name}.py {' '.join(command[2:])}", file=sys.stderr, flush=True)
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            raise click.ClickException(f"{name}.py ended with exit status {done.returncode}")
        ratios = benchmark.ratios(json.loads(done.stdout))
        found |= {f"{name} {case}": ratio for case, ratio in ratios.items()}
    return found


def check_idle() -> None:
    """Refuse to measure beside other work, of which the two sides do not suffer alike.

    PyTorch's threads wait for each other: where they share two cores with other processes, an image has
    taken forty times as long, and every ratio looked better than it is.
    """
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    if load > cores:
        raise click.ClickException(
            f"this machine is busy (load {load:.1f} on {cores} cores): ratios measured now would be wrong"
        )


def machine(devices: tuple[str, ...]) -> str:
    """Processor, cores and devices; ratios of one machine are compared with each other."""
    import dl4all as dl

    hardware = dict.fromkeys(dl.device(name).info.hardware for name in ("cpu", *devices))
    return f"{', '.join(hardware)}; {os.cpu_count()} cores"


def commit() -> str:
    """What is measured: as GitHub or GitLab says, otherwise as git does; ``-dirty`` with changes."""
    if given := os.environ.get("GITHUB_SHA") or os.environ.get("CI_COMMIT_SHA"):
        return given[:9]
    command = ["git", "describe", "--always", "--dirty", "--abbrev=9", "--exclude=*"]
    try:
        done = subprocess.run(command, cwd=HERE, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):  # an sdist, or a system without git
        return "unknown"
    return done.stdout.strip()


# ---- the history ---------------------------------------------------------------------------------------


def read(file: Path) -> list[Entry]:
    """All entries, the oldest first; none where there is no file.

    Raises:
        click.ClickException: a line is no entry; it names the line.
    """
    entries = []
    for number, line in enumerate(file.read_text("utf-8").splitlines() if file.exists() else [], 1):
        try:
            values = json.loads(line)
            entries.append(Entry(**{**values, "ratio": float(values["ratio"])}))
        except (ValueError, TypeError, KeyError):
            raise click.ClickException(f"{file}:{number}: not an entry of the history: {line[:80]}") from None
    return sorted(entries, key=lambda entry: entry.date)


def append(file: Path, entries: Iterable[Entry]) -> None:
    """Add a line for each entry."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a", encoding="utf-8") as out:
        out.writelines(json.dumps(entry._asdict()) + "\n" for entry in entries)


def series(entries: list[Entry]) -> dict[tuple[str, str], list[Entry]]:
    """Entries by machine and name, each in the order of time."""
    found: dict[tuple[str, str], list[Entry]] = defaultdict(list)
    for entry in entries:
        found[entry.machine, entry.name].append(entry)
    return dict(found)


def change(ratios: list[float]) -> float | None:
    """The last ratio over the median of up to ten before it, minus 1; None where there are none before."""
    earlier = ratios[-1 - RECENT : -1]
    return ratios[-1] / statistics.median(earlier) - 1 if earlier else None


def table(entries: list[Entry]) -> str:
    """The latest ratios and their changes in Markdown, a table for each machine."""
    lines = [
        "# Ratios",
        "",
        "Time of dl4all over PyTorch's on the CPU, in one run; less is better. The change is against the "
        f"median of up to {RECENT} runs before.",
    ]
    for place in dict.fromkeys(entry.machine for entry in entries):
        lines += ["", f"## {place}", "", "| benchmark | ratio | change | runs | commit | date |",
                  "|---|---:|---:|---:|---|---|"]  # fmt: skip
        for (where, name), found in series(entries).items():
            if where != place:
                continue
            last, moved = found[-1], change([entry.ratio for entry in found])
            shown = "" if moved is None else f"{moved:+.0%}"
            lines.append(
                f"| {name} | {last.ratio:.2f} | {shown} | {len(found)} | {last.commit} | {last.date[:10]} |"
            )
    return "\n".join(lines) + "\n"


def plot(entries: list[Entry], file: Path) -> None:
    """Draw each series over time, a panel for each benchmark and line styles for machines."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    names = list(dict.fromkeys(entry.name.split()[0] for entry in entries))
    places = list(dict.fromkeys(entry.machine for entry in entries))
    figure, panels = pyplot.subplots(len(names), 1, figsize=(9, 3.2 * len(names)), sharex=True, squeeze=False)
    for panel, benchmark in zip(panels[:, 0], names, strict=True):
        for (place, name), found in series(entries).items():
            if name.split()[0] == benchmark:
                dates = [datetime.datetime.fromisoformat(entry.date) for entry in found]
                style = ("-", "--", ":", "-.")[places.index(place) % 4]
                label = name.partition(" ")[2] + (f" ({places.index(place) + 1})" if len(places) > 1 else "")
                panel.plot(dates, [entry.ratio for entry in found], style, marker="o", label=label)
        panel.set_yscale("log")
        panel.set_title(benchmark)
        panel.set_ylabel("time / PyTorch's")
        panel.grid(alpha=0.3)
        panel.legend(fontsize="small", loc="center left", bbox_to_anchor=(1, 0.5))
    figure.autofmt_xdate()
    figure.tight_layout()
    figure.savefig(file)
    pyplot.close(figure)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--folder", default="build/benchmarks", show_default=True, type=click.Path(path_type=Path))
@click.option("--device", "devices", multiple=True, default=("cpu", "vulkan:0"), show_default=True)
@click.option("--show-only", is_flag=True, help="Measure nothing; make table and plot anew.")
def main(folder: Path, devices: tuple[str, ...], show_only: bool) -> None:
    history = folder / "ratios.jsonl"
    entries = read(history)  # before minutes of measuring: it may be broken
    if not show_only:
        check_idle()
        now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
        place, revision = machine(devices), commit()
        append(history, [Entry(now, revision, place, *pair) for pair in measure(devices).items()])
        entries = read(history)
    if not entries:
        raise click.ClickException(f"{history} has no entries yet; run without --show-only")
    text = table(entries)
    (folder / "trend.md").write_text(text, "utf-8")
    plot(entries, folder / "trend.png")
    if summary := os.environ.get("GITHUB_STEP_SUMMARY"):
        with Path(summary).open("a", encoding="utf-8") as out:
            out.write(text)
    print(text)


if __name__ == "__main__":
    main()
