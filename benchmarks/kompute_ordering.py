"""Ways to run dispatches in order through Kompute, and what each costs.

    python benchmarks/kompute_ordering.py [--repeat N] [--device N] [--json]

"dependent" dispatches all add to one tensor, "independent" ones each to their own. Times are medians over the
repeats, in microseconds for each dispatch; the ways take turns. docs/decisions/0002-kompute-ordering.md says
which of them are correct. With ``DL4ALL_VALIDATION=1`` the layer judges them, where its synchronization
validation is on.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from dl4all.errors import Dl4allError
from dl4all.runtime import spirv
from dl4all.runtime.kompute.library import kp, manager

SOURCE = """#version 450
layout(local_size_x = 64) in;
layout(binding = 0) buffer X { uint x[]; };
layout(push_constant) uniform Push { uint step; } p;
void main() { x[gl_GlobalInvocationID.x] += p.step; }
"""
COUNT = 100
SIZES = (4096, 1 << 20)  # elements of each tensor
PUSH = np.array([1], np.uint32)
NOTHING = np.empty(0, np.uint32)

Way = Callable[[], object]


class Bench:
    """Tensors of one size, and an algorithm on each."""

    def __init__(self, manager: Any, elements: int) -> None:
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "add.comp").write_text(SOURCE)
            module = spirv.load(spirv.Shader("add.comp"), Path(folder))
        self.manager = manager
        tensor_type = kp().TensorTypes.device
        self.tensors = [manager.tensor_t(np.zeros(elements, np.uint32), tensor_type) for _ in range(COUNT)]
        self.tiny = manager.tensor_t(np.zeros(64, np.uint32), tensor_type)
        grid = (elements // 64, 1, 1)
        self.algorithms = [
            manager.algorithm([tensor], module.code, grid, NOTHING, PUSH) for tensor in self.tensors
        ]

    def sequence(self, *operations: Any) -> Any:
        """Operations recorded into a sequence of their own."""
        sequence = self.manager.sequence()
        for operation in operations:
            sequence.record(operation)
        return sequence

    def dispatch(self, which: int = 0) -> Any:
        return kp().OpAlgoDispatch(self.algorithms[which], PUSH)

    def ways(self) -> dict[str, Way]:
        """What to time: each adds COUNT times."""
        everyone = range(COUNT)
        kept = self.sequence(self.dispatch())
        others = [self.sequence(self.dispatch(i)) for i in everyone]
        written = kp().OpTensorSyncLocal(self.tensors[:1])
        tiny = kp().OpTensorSyncLocal([self.tiny])
        behind_written = self.sequence(*(op for _ in everyone for op in (self.dispatch(), written)))
        behind_tiny = self.sequence(*(op for _ in everyone for op in (self.dispatch(), tiny)))
        together = self.sequence(*(self.dispatch(i) for i in everyone))

        def each_kept() -> None:
            for _ in everyone:
                kept.eval()

        def each_recorded_anew() -> None:
            for _ in everyone:
                sequence = self.sequence(self.dispatch())
                sequence.eval()
                sequence.destroy()

        def independent_each() -> None:
            for sequence in others:
                sequence.eval()

        def gathered() -> None:
            sequence = self.sequence(*(self.dispatch(i) for i in everyone))
            sequence.eval()
            sequence.destroy()

        return {
            "dependent: a submission each": each_kept,
            "dependent: a submission each, recorded anew": each_recorded_anew,
            "dependent: one submission, the written tensor synced between": behind_written.eval,
            "dependent: one submission, a tiny tensor synced between": behind_tiny.eval,
            "independent: a submission each": independent_each,
            "independent: one submission": together.eval,
            "independent: one submission, recorded anew": gathered,
        }


def seconds(way: Way) -> float:
    start = time.perf_counter()
    way()
    return time.perf_counter() - start


def measure(manager: Any, elements: int, repeat: int) -> dict[str, float]:
    """Median microseconds for each dispatch, by way."""
    ways = Bench(manager, elements).ways()
    times: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(repeat + 1):
        for name, way in ways.items():
            took = seconds(way)
            if turn:  # the first touches memory
                times[name].append(took)
    return {name: statistics.median(taken) / COUNT * 1e6 for name, taken in times.items()}


@click.command()
@click.option("--repeat", type=click.IntRange(min=1), default=30, show_default=True)
@click.option("--device", type=click.IntRange(min=0), default=0, show_default=True)
@click.option("--json", "as_json", is_flag=True)
def main(repeat: int, device: int, as_json: bool) -> None:
    """Compare ways to keep dispatches in order with Kompute."""
    try:
        opened = manager(device)
    except Dl4allError as error:
        raise click.ClickException(str(error)) from None
    results = {elements: measure(opened, elements, repeat) for elements in SIZES}
    opened.destroy()
    if as_json:
        print(json.dumps(results, indent=2))
        return
    table = Table("us for each dispatch", *(f"{4 * elements >> 10} KiB" for elements in SIZES))
    for name in results[SIZES[0]]:
        table.add_row(name, *(f"{results[elements][name]:.1f}" for elements in SIZES))
    Console().print(table)


if __name__ == "__main__":
    main()
