"""A placement: which device computes which modules, how long that takes as predicted, and why."""

from __future__ import annotations

import io
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

from dl4all.errors import ArgumentError
from dl4all.multi_device.placement.schedule_times import TimeSlot
from dl4all.scheduler.device.device import Device

WIDTH = 140  # of a printed table
COLUMNS = 60  # of a line of time


@dataclass(frozen=True)
class MemoryUse:
    """Bytes of a stage on its device."""

    parameters: int
    gradients: int
    optimizer: int
    buffers: int
    activations: int
    """Bytes that micro-batches under way keep and have received, and temporary results at most."""

    @property
    def total(self) -> int:
        return self.parameters + self.gradients + self.optimizer + self.buffers + self.activations


@dataclass(frozen=True)
class PlacedStage:
    """Consecutive modules on one device. Seconds are of a micro-batch, except for `update`."""

    device: Device
    units: tuple[str, ...]
    """The parts of the model that stay together, such as residual blocks."""
    modules: tuple[str, ...]
    """Paths of all modules that it calls; one without parameters may be in several stages."""
    forward: float
    backward: float
    accumulation: float
    """Adding up gradients; not for the first micro-batch."""
    update: float
    """The optimizer's step, once."""
    receive: float
    """The copy of the activation from the stage before."""
    give_back: float
    """The copy of its gradient to the stage before."""
    received: int
    """Bytes of the activation."""
    memory: MemoryUse

    @property
    def share(self) -> float:
        """The part of the device's memory that it takes."""
        return self.memory.total / self.device.info.memory


@dataclass(frozen=True)
class Alternative:
    """Another way that was considered, or refused."""

    devices: tuple[str, ...]
    seconds: float | None
    """None where it cannot be."""
    reason: str


@dataclass(frozen=True)
class Placement:
    """The answer of :func:`dl4all.multi_device.placement.placement.place`. ``print`` shows it as a table."""

    model: str
    stages: tuple[PlacedStage, ...]
    seconds: float
    """Of a step: all micro-batches forward, in training backward too, and the optimizer."""
    training: bool
    micro_batches: int
    reason: str
    """Why it is this and nothing else."""
    alternatives: tuple[Alternative, ...]
    slots: tuple[TimeSlot, ...]
    """When each stage does what."""

    @property
    def split(self) -> list[str]:
        """The units that the stages begin with."""
        return [stage.units[0] for stage in self.stages]

    def device_of(self, path: str) -> Device:
        """The device of a module by its path, or of all modules below one; "" means the model.

        Raises:
            ArgumentError: the model has called no such module, or it is on several devices.
        """
        found = [
            stage.device
            for stage in self.stages
            if any(not path or f"{module}.".startswith(f"{path}.") for module in stage.modules)
        ]
        if len(found) != 1:
            where = f"on {', '.join(map(str, found))}" if found else "no module that was called"
            raise ArgumentError(f"[Placement] expected a module that is on one device, got {path!r}: {where}")
        return found[0]

    def busy(self, stage: int) -> float:
        """The part of the step in which a stage computes."""
        taken = sum(s.end - s.start for s in self.slots if s.stage == stage and s.kind != "transfer")
        return taken / self.seconds if self.seconds else 0.0

    def as_dict(self) -> dict[str, Any]:
        """Everything as JSON has it; devices by name."""
        return {
            "model": self.model,
            "training": self.training,
            "micro_batches": self.micro_batches,
            "seconds": self.seconds,
            "reason": self.reason,
            "stages": [_stage_as_dict(stage) for stage in self.stages],
            "alternatives": [asdict(alternative) for alternative in self.alternatives],
            "slots": [slot._asdict() for slot in self.slots],
        }

    def table(self) -> Table:
        """A row for each stage, for ``rich``."""
        shown = Table(caption=self.summary(), caption_justify="left", caption_style="")
        for heading in ("device", "modules"):
            shown.add_column(heading, overflow="fold")
        headings = (
            "forward ms",
            "backward ms",
            "update ms",
            "received MB",
            "transfer ms",
            "busy",
            "memory MB",
            "share",
        )
        for heading in headings:
            shown.add_column(heading, justify="right", no_wrap=True)
        for index, stage in enumerate(self.stages):
            shown.add_row(
                str(stage.device),
                _span(stage.units),
                *(f"{seconds * 1e3:.3f}" for seconds in (stage.forward, stage.backward, stage.update)),
                f"{stage.received / 1e6:.3f}" if index else "-",
                f"{(stage.receive + stage.give_back) * 1e3:.3f}" if index else "-",
                f"{self.busy(index):.0%}",
                f"{stage.memory.total / 1e6:.1f}",
                f"{stage.share:.1%}",
            )
        return shown

    def summary(self) -> str:
        """The total in a sentence."""
        step = "a step of training" if self.training else "a forward pass"
        parts = f" of {self.micro_batches} micro-batches" if self.micro_batches > 1 else ""
        return f"{self.model}: {step}{parts} in {self.seconds * 1e3:.3f} ms; {self.reason}."

    def alternatives_table(self) -> Table:
        """A row for each other way, for ``rich``."""
        shown = Table(title="Considered", title_justify="left", title_style="")
        shown.add_column("devices", overflow="fold")
        shown.add_column("ms", justify="right", no_wrap=True)
        shown.add_column("", overflow="fold")
        for other in self.alternatives:
            seconds = "-" if other.seconds is None else f"{other.seconds * 1e3:.3f}"
            shown.add_row(", then ".join(other.devices), seconds, other.reason)
        return shown

    def timeline(self, columns: int = COLUMNS) -> list[str]:
        """A line of text for each stage: ``F`` forward, ``B`` backward, ``U`` update, ``.`` nothing."""
        width = max(len(str(stage.device)) for stage in self.stages)
        lines = []
        for index, stage in enumerate(self.stages):
            line = ["."] * columns
            for slot in self.slots:
                if slot.stage == index and slot.kind != "transfer" and self.seconds:
                    start, end = (round(t / self.seconds * columns) for t in (slot.start, slot.end))
                    line[start:end] = slot.kind[0].upper() * (end - start)
            lines.append(f"{stage.device!s:{width}} {''.join(line)}")
        return lines

    def __str__(self) -> str:
        text = io.StringIO()
        console = Console(file=text, width=WIDTH)
        console.print(self.table())
        if self.alternatives:
            console.print(self.alternatives_table())
        return "\n".join([*map(str.rstrip, text.getvalue().splitlines()), *self.timeline()])


def _span(units: tuple[str, ...]) -> str:
    """Units by the first and the last.

    >>> _span(("conv1", "bn1", "relu")), _span(("fc",)), _span(("",))
    ('conv1 ... relu (3)', 'fc', 'the model')
    """
    return f"{units[0]} ... {units[-1]} ({len(units)})" if len(units) > 1 else units[0] or "the model"


def _stage_as_dict(stage: PlacedStage) -> dict[str, Any]:
    values = {name: value for name, value in vars(stage).items() if name not in ("device", "memory")}
    memory = {**asdict(stage.memory), "total": stage.memory.total}
    return {"device": str(stage.device), **values, "memory": memory, "share": stage.share}
