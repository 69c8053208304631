"""Reports of a program on the clock: cycles, utilisation, bytes, energy, roofline, and a timeline."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from dl4all.graph.accelerator.model import UNITS, Hardware, Unit
from dl4all.graph.accelerator.picture import draw
from dl4all.graph.accelerator.timeline import Phase, timed
from dl4all.graph.op_codes.instruction import OpProgram


class OpCycles(NamedTuple):
    """The cycles that an op kept each unit busy, the bytes of DRAM that it moved, and its multiply-adds."""

    op: str
    array: int
    vector: int
    dma: int
    dram_bytes: int
    multiply_adds: int


@dataclass(frozen=True)
class AcceleratorReport:
    """A program on the clock of a model.

    ``busy`` are the cycles in which each unit works, ``energy`` picojoules by what uses them.
    """

    hardware: Hardware
    cycles: int
    instructions: int
    busy: dict[Unit, int]
    multiply_adds: int
    dram_bytes: int
    scratchpad_words: int
    vector_elements: int
    ops: tuple[OpCycles, ...]
    phases: tuple[Phase, ...]

    @property
    def seconds(self) -> float:
        return self.cycles / self.hardware.clock

    @property
    def utilisation(self) -> dict[Unit, float]:
        """The share of all cycles in which each unit works."""
        return {unit: self.busy[unit] / max(self.cycles, 1) for unit in UNITS}

    @property
    def peak(self) -> float:
        """Multiply-adds a cycle that the array can do."""
        rows, columns = self.hardware.array
        return float(rows * columns)

    @property
    def efficiency(self) -> float:
        """Multiply-adds over those that the array could do in all cycles."""
        return self.multiply_adds / (self.peak * max(self.cycles, 1))

    @property
    def energy(self) -> dict[str, float]:
        """Picojoules, by the model's table."""
        table = self.hardware.energy
        return {
            "array": self.multiply_adds * table.multiply_add,
            "vector": self.vector_elements * table.vector,
            "scratchpad": self.scratchpad_words * table.scratchpad,
            "dram": self.dram_bytes / 4 * table.dram,
        }

    @property
    def roofline(self) -> dict[str, Any]:
        """Multiply-adds for each byte of DRAM, what that allows at most, and what is reached, a cycle."""
        intensity = self.multiply_adds / max(self.dram_bytes, 1)
        slope = intensity * self.hardware.dram_bytes_per_cycle
        return {
            "intensity": intensity,
            "attainable": min(self.peak, slope),
            "achieved": self.multiply_adds / max(self.cycles, 1),
            "bound": "array" if slope >= self.peak else "dram",
        }

    def draw(self, file: str | Path, title: str = "") -> None:
        """Draw timeline and roofline; see :func:`dl4all.graph.accelerator.picture.draw`."""
        draw(file, title, self.phases, self.cycles, self.hardware, self.roofline)

    def as_dict(self) -> dict[str, Any]:
        """The report as plain numbers, as ``dl4all emulate --json`` prints it."""
        return {
            "array": list(self.hardware.array),
            "dataflow": self.hardware.dataflow,
            "scratchpad": self.hardware.scratchpad,
            "cycles": self.cycles,
            "seconds": self.seconds,
            "instructions": self.instructions,
            "utilisation": self.utilisation,
            "efficiency": self.efficiency,
            "multiply_adds": self.multiply_adds,
            "bytes": self.dram_bytes,
            "energy": self.energy,
            "roofline": self.roofline,
            "ops": [one._asdict() for one in self.ops],
        }


def report_of(
    program: OpProgram, names: Sequence[str], hardware: Hardware, jumps: Iterable[bool]
) -> AcceleratorReport:
    """The report of a program; `names` are the ops of its instructions, `jumps` which of its jumps are taken.

    Raises:
        ArgumentError: the program jumps.
    """
    busy: dict[Unit, int] = dict.fromkeys(UNITS, 0)
    sums: dict[str, list[int]] = defaultdict(lambda: [0] * 5)
    phases: dict[Unit, Phase] = {}
    finished: list[Phase] = []
    cycles = count = words = elements = 0
    for position, cost, start, end in timed(program, hardware, jumps):
        count += 1
        cycles = max(cycles, end)
        busy[cost.unit] += cost.cycles
        words += cost.scratchpad_words
        elements += cost.vector_elements
        own = sums[names[position]]
        own[UNITS.index(cost.unit)] += cost.cycles
        own[3] += cost.dram_bytes
        own[4] += cost.multiply_adds
        known = phases.get(cost.unit)
        if known is not None and known.op == names[position]:
            phases[cost.unit] = known._replace(
                start=min(known.start, start), end=max(known.end, end), busy=known.busy + cost.cycles
            )
        else:
            if known is not None:
                finished.append(known)
            phases[cost.unit] = Phase(cost.unit, names[position], start, end, cost.cycles)
    ops = tuple(OpCycles(op, *numbers) for op, numbers in sums.items())
    return AcceleratorReport(
        hardware,
        cycles,
        count,
        busy,
        sum(one.multiply_adds for one in ops),
        sum(one.dram_bytes for one in ops),
        words,
        elements,
        ops,
        tuple(sorted([*finished, *phases.values()], key=lambda phase: phase.start)),
    )
