"""The best cuts of a chain of layers for devices in a given order, by numbers alone: seconds and bytes.

:mod:`dl4all.multi_device.placement.partition` looks for the order, too; with several micro-batches it tries
some bounds for the slowest part. Here the order is given, the result is exact, and a stage may need whatever
it says.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from itertools import accumulate
from typing import NamedTuple

from dl4all.multi_device.placement.partition import UnitRange


class _Plan(NamedTuple):
    """The stages of the last layers."""

    latency: float  # seconds of a micro-batch through all of them
    slowest: float  # seconds of the stage, or copy, that takes longest
    parts: tuple[UnitRange, ...]


def ordered_partition(
    seconds: Sequence[Sequence[float]],
    limits: Sequence[float],
    nbytes: Callable[[int, int, int], float],
    micro_batches: int,
    *,
    sending: Sequence[Sequence[float]] | None = None,
    receiving: Sequence[Sequence[float]] | None = None,
    uncut: Collection[int] = (),
) -> list[UnitRange] | None:
    """The stages with which a batch is done soonest, among those that fit into memory.

    A batch takes as long as one micro-batch takes through all stages, and as the slowest stage takes for
    each of the others. The devices are taken in their order, and some may be left out. Exact: dynamic
    programming from the last layer on, which keeps of all ways to cut the layers behind one those that are
    best in latency or in the slowest stage.

    Args:
        seconds: of one micro-batch, forward and backward, by device and layer.
        limits: bytes that each device has.
        nbytes: ``nbytes(start, stop, after)`` is what a stage of these layers needs with so many stages after
            it.
        micro_batches: into how many parts a batch is divided.
        sending, receiving: seconds in which a layer's result goes from a device, or to one, and its
            gradient back, by device and layer; by default none.
        uncut: layers that no stage may begin with.

    Returns:
        The stages in their order, or None if nothing fits.

    Example:
        >>> layers = [1.0, 1.0, 2.0, 4.0]
        >>> parts = ordered_partition(
        ...     [layers, layers], [100.0, 100.0], lambda start, stop, after: stop - start, 8
        ... )
        >>> [(part.start, part.end) for part in parts]
        [(0, 3), (3, 4)]
    """
    devices, layers = len(seconds), len(seconds[0])
    until = [[0.0, *accumulate(row)] for row in seconds]
    plans: dict[tuple[int, int], list[_Plan]] = {(layers, 0): [_Plan(0.0, 0.0, ())]}  # by first layer, stages
    for device in reversed(range(devices)):
        found: list[tuple[tuple[int, int], _Plan]] = []
        for (stop, after), behind in plans.items():
            for start in range(stop):
                if start in uncut or nbytes(start, stop, after) > limits[device]:
                    continue
                own = until[device][stop] - until[device][start]
                sent = sending[device][stop - 1] if sending and stop < layers else 0.0
                received = receiving[device][start - 1] if receiving and start else 0.0
                for plan in behind:
                    found.append(
                        (
                            (start, after + 1),
                            _Plan(
                                plan.latency + own + sent + received,
                                max(plan.slowest, own, sent, received),
                                (UnitRange(start, stop, device), *plan.parts),
                            ),
                        )
                    )
        for key, plan in found:
            plans[key] = _with(plans.get(key, []), plan)
    complete = [plan for (first, _), known in plans.items() if first == 0 for plan in known]
    if not complete:
        return None
    best = min(complete, key=lambda plan: plan.latency + (micro_batches - 1) * plan.slowest)
    return list(best.parts)


def _with(known: list[_Plan], plan: _Plan) -> list[_Plan]:
    """The candidates of which none is better in latency and in the slowest stage."""
    if any(other.latency <= plan.latency and other.slowest <= plan.slowest for other in known):
        return known
    return [o for o in known if o.latency < plan.latency or o.slowest < plan.slowest] + [plan]
