"""Which device computes which modules of a model: the fastest split that fits the memory, as predicted.

Where there is no compiled graph, modules are what can be placed. A model is traced without computing
(:mod:`dl4all.multi_device.trace.work_trace`), cut into units (:mod:`dl4all.multi_device.placement.units`),
and consecutive units are given to devices (:mod:`dl4all.multi_device.placement.partition`) by the cost model
(:mod:`dl4all.scheduler.cost.cost_model`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from dl4all.errors import ArgumentError, OutOfMemoryError
from dl4all.multi_device.placement.partition import UnitRange, candidates
from dl4all.multi_device.placement.plan import Alternative, Placement
from dl4all.multi_device.placement.schedule_times import length, schedule_times
from dl4all.multi_device.placement.stage_costs import StageCosts, times, usable_memory
from dl4all.multi_device.placement.units import units
from dl4all.multi_device.trace.work_trace import Loss, resized, samples_of, trace_work
from dl4all.nn.module import Module
from dl4all.runtime.registry import hardware_name
from dl4all.scheduler.device.current import device as open_device
from dl4all.scheduler.device.device import Device
from dl4all.scheduler.streams.group import DeviceGroup

ADAM = 8.0
"""Bytes that Adam keeps for each float32 that it trains."""
GAIN = 1e-9  # by which a split must be faster than fewer devices: rounding is none


def place(
    model: Module,
    devices: DeviceGroup | Sequence[str | Device],
    *example_inputs: Any,
    training: bool = True,
    optimizer_bytes_per_parameter: float = ADAM,
    micro_batches: int = 1,
    loss: Loss | None = None,
    targets: Sequence[Any] = (),
) -> Placement:
    """Find the devices on which a model is predicted to run fastest. Nothing is computed, and nothing moved.

    The time is that of a step: forward, in training backward and the optimizer, and the copies of activations
    and their gradients between devices, through the host. The input's way to the first device does not count.
    Of devices that are one piece of hardware only the first is considered.

    Args:
        model: on any device.
        devices: a group, of which those that still work count, or names or devices, or ``"all"``.
        example_inputs: a batch; see :func:`dl4all.multi_device.trace.work_trace.trace_work`.
        training: whether it is to be trained.
        optimizer_bytes_per_parameter: what the optimizer keeps for each number that is trained: 0 for SGD, 4
            with momentum, 8 for Adam, in float32.
        micro_batches: into how many parts the batch is cut. With more than one, stages work side by side
            (1F1B).
        loss, targets: ``loss(output, *targets)`` belongs to the step; without it, only the model.

    Raises:
        ArgumentError: there is no device, or the batch has fewer samples than micro-batches.
        OutOfMemoryError: no split fits; the message has the numbers.
        TraceError: the model's forward depends on numbers.

    Example:
        >>> import dl4all as dl
        >>> from dl4all.scheduler.cost.simulation import simulated_device
        >>> slow, fast = simulated_device(gflops=10.0), simulated_device(gflops=100.0)
        >>> net = dl.nn.Sequential(dl.nn.Linear(256, 512), dl.nn.ReLU(), dl.nn.Linear(512, 256))
        >>> placement = place(net, [slow, fast], dl.zeros(128, 256))
        >>> [(stage.device is fast, stage.units) for stage in placement.stages]
        [(True, ('0', '1', '2'))]
    """
    if isinstance(devices, str):
        devices = DeviceGroup(devices)  # which refuses all names but "all"
    given = devices.alive if isinstance(devices, DeviceGroup) else tuple(map(open_device, devices))
    if not given or micro_batches < 1:
        raise ArgumentError(
            f"[place] expected a device and at least one micro-batch, got {len(given)} devices and "
            f"{micro_batches} micro-batches"
        )
    if micro_batches > 1:
        samples = samples_of("place", example_inputs, tuple(targets))
        if samples < micro_batches:
            raise ArgumentError(
                f"[place] {samples} samples are too few for {micro_batches} micro-batches; use a larger batch"
            )
        largest = math.ceil(samples / micro_batches)
        example_inputs, targets = resized(example_inputs, largest), resized(tuple(targets), largest)
    trace = trace_work(model, *example_inputs, training=training, loss=loss, targets=targets)
    chosen, refused = _distinct(given)
    costs = StageCosts(trace, units(trace, optimizer_bytes_per_parameter), chosen, micro_batches)
    name = type(model).__name__
    found = [_placement(name, training, costs, partition) for partition in candidates(costs.problem())]
    if not found:
        raise OutOfMemoryError(_too_large(name, costs))
    best = min(found, key=lambda placement: placement.seconds * (1 + GAIN * len(placement.stages)))
    alone = {p.stages[0].device: p for p in found if len(p.stages) == 1}
    others = [
        _considered(alone[device]) if device in alone else _refused(number, costs)
        for number, device in enumerate(chosen)
        if best is not alone.get(device)
    ]
    splits = sorted((p for p in found if len(p.stages) > 1 and p is not best), key=lambda p: p.seconds)
    alternatives = (*others, *map(_considered, splits), *refused)
    return replace(best, reason=_reason(best, list(alone.values()), alternatives), alternatives=alternatives)


def _distinct(devices: Sequence[Device]) -> tuple[list[Device], list[Alternative]]:
    """The first device of each piece of hardware, and why the others are none to choose."""
    first: dict[str, Device] = {}
    refused = []
    for device in devices:
        other = first.setdefault(hardware_name(device.name), device)
        if other is not device:
            refused.append(Alternative((str(device),), None, f"the same hardware as {other}"))
    return list(first.values()), refused


def _placement(name: str, training: bool, costs: StageCosts, partition: Sequence[UnitRange]) -> Placement:
    stages = costs.stages(partition)
    slots = schedule_times(times(stages), costs.micro_batches)
    return Placement(name, tuple(stages), length(slots), training, costs.micro_batches, "", (), tuple(slots))


def _considered(placement: Placement) -> Alternative:
    names = tuple(str(stage.device) for stage in placement.stages)
    if len(names) == 1:
        return Alternative(names, placement.seconds, "alone")
    starts = ", ".join(unit or "the model" for unit in placement.split[1:])
    return Alternative(names, placement.seconds, f"cut at {starts}")


def _refused(number: int, costs: StageCosts) -> Alternative:
    """A device that cannot have the whole model."""
    device = costs.devices[number]
    use = costs.memory_use(UnitRange(0, len(costs.chain), number), 0)
    needed, there = _megabytes(use.total), _megabytes(usable_memory(device))
    return Alternative((str(device),), None, f"too little memory alone: needs {needed}, has {there}")


def _reason(best: Placement, alone: Sequence[Placement], others: Sequence[Alternative]) -> str:
    if len(best.stages) > 1:
        if not alone:
            return "no device has the memory alone"
        fastest = min(alone, key=lambda placement: placement.seconds)
        gain = fastest.seconds / best.seconds
        return f"{gain:.2f} times as fast as {fastest.stages[0].device} alone"
    device = best.stages[0].device
    if not others:
        return f"{device} is the only device"
    return f"nothing is predicted to be faster than {device} alone"


def _too_large(name: str, costs: StageCosts) -> str:
    """Why a model fits nowhere, in numbers."""
    whole = costs.memory_use(UnitRange(0, len(costs.chain), 0), 0)
    sizes = [costs.memory_use(UnitRange(i, i + 1, 0), 0).total for i in range(len(costs.chain))]
    largest = max(range(len(sizes)), key=sizes.__getitem__)
    have = ", ".join(f"{device} {_megabytes(usable_memory(device))}" for device in costs.devices)
    shared = (
        ""
        if len(sizes) > 1
        else "; it cannot be cut, since tensors or parameters are used across its modules"
    )
    part = (
        f", of which {costs.chain[largest].name} alone needs {_megabytes(sizes[largest])}"
        if len(sizes) > 1
        else ""
    )
    return (
        f"[place] {name} needs {_megabytes(whole.total)} ({_megabytes(whole.activations)} for activations)"
        f"{part}, "
        f"and no split fits into {have}{shared}; use a smaller batch, more micro-batches, or more devices"
    )


def _megabytes(nbytes: float) -> str:
    return f"{nbytes / 1e6:,.1f} MB"
