"""The costs of parts of a model on each device: seconds, copies between devices, and memory."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dl4all.multi_device.placement.partition import Numbers, PartitionProblem, UnitRange
from dl4all.multi_device.placement.plan import MemoryUse, PlacedStage
from dl4all.multi_device.placement.schedule_times import StageTimes
from dl4all.multi_device.placement.units import Unit
from dl4all.multi_device.trace.work_trace import WorkTrace
from dl4all.scheduler.cost.cost_model import speeds
from dl4all.scheduler.device.device import Device

RESERVE = 0.1
"""The part of a real device's memory that is left to other programs and to temporary buffers of kernels."""


class StageCosts:
    """The costs of a chain of units on devices.

    Args:
        trace: of one micro-batch.
        chain: its units.
        devices: those to choose from.
        micro_batches: how many there are in a step.
    """

    def __init__(
        self, trace: WorkTrace, chain: Sequence[Unit], devices: Sequence[Device], micro_batches: int
    ) -> None:
        self.chain, self.devices, self.micro_batches = chain, devices, micro_batches
        self._training = trace.training
        self._speeds = [speeds(device) for device in devices]
        # Bytes that come in at each unit: the model's input, and what the unit before hands on.
        self._received = [trace.input, *(unit.handed for unit in chain[:-1])]
        # Of those, what the units behind do not count themselves.
        self._beside = [trace.input, *(unit.handed * unit.keeps_handed for unit in chain[:-1])]

    def problem(self) -> PartitionProblem:
        """The costs as :func:`dl4all.multi_device.placement.partition.candidates` takes them."""
        m = self.micro_batches
        each = np.array([[(u.forward + u.backward).seconds(s) for u in self.chain] for s in self._speeds])
        more = np.array([[u.accumulation.seconds(s) * (m > 1) for u in self.chain] for s in self._speeds])
        update = np.array([[u.update.seconds(s) for u in self.chain] for s in self._speeds])
        numbers = range(len(self.devices))
        there = np.array([[[self.move(a, b, n) for n in self._received] for b in numbers] for a in numbers])
        live = range(1, min(m, len(self.devices)) + 1)
        return PartitionProblem(
            each + more,
            update - more,  # the first micro-batch has nothing to add to
            there + there.transpose(1, 0, 2) * float(self._training),
            [self._memory(count) for count in live],
            list(map(usable_memory, self.devices)),
            m,
        )

    def move(self, source: int, target: int, nbytes: int) -> float:
        """Seconds of a copy between two devices by their numbers, through the host."""
        if source == target:
            return 0.0
        down = 0.0 if self.devices[source].is_cpu else self._speeds[source].download(nbytes)
        up = 0.0 if self.devices[target].is_cpu else self._speeds[target].upload(nbytes)
        return down + up

    def _memory(self, live: int) -> Numbers:
        """Bytes of each part, by its first unit and its end, with so many micro-batches under way."""
        n = len(self.chain)
        memory = np.zeros((n, n + 1))
        for start in range(n):
            static = saved = peak = 0
            for end, unit in enumerate(self.chain[start:], start + 1):
                peak = max(peak, saved + unit.peak)
                static, saved = static + unit.static, saved + unit.saved
                memory[start, end] = static + live * self._beside[start] + (live - 1) * saved + peak
        return memory

    def memory_use(self, part: UnitRange, behind: int) -> MemoryUse:
        """The memory of a part which so many others are behind."""
        chain = self.chain[part.start : part.end]
        live = min(self.micro_batches, behind + 1)
        total = int(self._memory(live)[part.start, part.end])
        return MemoryUse(
            sum(unit.parameters for unit in chain),
            sum(unit.gradients for unit in chain),
            sum(unit.optimizer for unit in chain),
            sum(unit.buffers for unit in chain),
            total - sum(unit.static for unit in chain),
        )

    def stages(self, partition: Sequence[UnitRange]) -> list[PlacedStage]:
        """A partition with all that is to know of its parts."""
        found = []
        for index, part in enumerate(partition):
            chain, speed = self.chain[part.start : part.end], self._speeds[part.device]
            nbytes = self._received[part.start]
            before = partition[index - 1].device if index else part.device
            found.append(
                PlacedStage(
                    self.devices[part.device],
                    tuple(unit.name for unit in chain),
                    tuple(dict.fromkeys(path for unit in chain for path in unit.modules)),
                    sum(unit.forward.seconds(speed) for unit in chain),
                    sum(unit.backward.seconds(speed) for unit in chain),
                    sum(unit.accumulation.seconds(speed) for unit in chain),
                    sum(unit.update.seconds(speed) for unit in chain),
                    self.move(before, part.device, nbytes),
                    self.move(part.device, before, nbytes) if self._training else 0.0,
                    nbytes,
                    self.memory_use(part, len(partition) - 1 - index),
                )
            )
        return found


def times(stages: Sequence[PlacedStage]) -> list[StageTimes]:
    """The seconds of stages."""
    return [
        StageTimes(s.forward, s.backward, s.accumulation, s.update, s.receive, s.give_back) for s in stages
    ]


def usable_memory(device: Device) -> int:
    """Bytes of a device that a model may take."""
    there = device.info.memory
    return there if device.simulated is not None else int(there * (1 - RESERVE))
