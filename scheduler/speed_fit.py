"""The speeds of a device from what a profile measured there, by least squares.

Each op of the profile is an equation: its seconds are those of one launch, of the bytes of its operands and
its result, and of its floating point operations at the rate of its family. Equations are scaled so that
relative errors count, and those that stand out are given less weight. What a profile does not determine stays
close to what was known before.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dl4all.errors import ArgumentError
from dl4all.runtime import speed_records
from dl4all.runtime.profiler.recorder import Event
from dl4all.runtime.registry import hardware_name
from dl4all.runtime.work import Speeds
from dl4all.scheduler.cost_model import calibrated
from dl4all.scheduler.device import Device
from dl4all.scheduler.profile import Profile

PRIOR = 1e-2  # the weight of what was known before, where an op has 1
OUTLIER = 0.2  # a relative error from which on an equation loses weight
ROUNDS = 10  # of weighting the equations anew

Matrix = npt.NDArray[np.float64]


class Sample(NamedTuple):
    """What one op took; of several calls with the same operands, the median."""

    family: str
    nbytes: float
    flops: float
    seconds: float


def fit(profile: Profile | Iterable[Event], device: Device) -> Speeds:
    """The speeds that explain a profile best.

    Args:
        profile: a finished profile, or its events. A step of training, run three times or more, has enough of
            them.
        device: the device whose events count.

    Raises:
        ArgumentError: nothing in the profile ran on the device.

    Example:
        >>> import dl4all as dl
        >>> x = dl.ones(64, 64, device="cpu")
        >>> with dl.profile() as p:
        ...     y = (x @ x).relu()
        >>> fit(p, dl.device("cpu")).per_flop_of.keys()
        dict_keys(['linalg'])
    """
    events = profile.events if isinstance(profile, Profile) else list(profile)
    found = samples(events, device)
    if not found:
        raise ArgumentError(
            f"[fit] nothing in the profile ran on {device}; profile a model that is there, with its inputs"
        )
    prior = calibrated(hardware_name(device.name), device.info)
    families = sorted({sample.family for sample in found if sample.flops})
    rows = [
        [1.0, sample.nbytes, *(sample.flops * (family == sample.family) for family in families)]
        for sample in found
    ]
    known = [prior.launch, prior.per_byte, *(prior.per_flop for _ in families)]
    launch, per_byte, *per_flop = _robust(rows, [sample.seconds for sample in found], known)
    speeds = replace(
        prior, launch=launch, per_byte=per_byte, per_flop_of=dict(zip(families, per_flop, strict=True))
    )
    return _with_transfers(speeds, events, device)


def keep(speeds: Speeds, device: Device) -> None:
    """Let :func:`dl4all.scheduler.cost_model.speeds` go by these from now on, in later processes too."""
    speed_records.store(hardware_name(device.name), device.info, speeds)


def samples(events: Iterable[Event], device: Device) -> list[Sample]:
    """What the ops on a device took.

    On a host it is the time of the call. Elsewhere an op takes the time of its kernels, or that to record
    them if it is longer: then the device waits for the host.
    """
    calls: dict[tuple[Any, ...], list[float]] = {}
    for op, kernels in _outermost(events, str(device)):
        seconds = op.seconds if device.is_host else max(op.seconds, sum(kernel.seconds for kernel in kernels))
        calls.setdefault((op.name, op.family, op.shapes, op.nbytes, op.flops), []).append(seconds)
    return [
        Sample(family, nbytes, flops, statistics.median(seconds))
        for (_, family, _, nbytes, flops), seconds in calls.items()
        if statistics.median(seconds) > 0
    ]


def _outermost(events: Iterable[Event], device: str) -> list[tuple[Event, list[Event]]]:
    """Each op that no other op called, with the kernels that it and those that it called launched."""
    calls: list[tuple[Event, list[Event]]] = []
    open_calls: dict[int, tuple[Event, list[Event]]] = {}  # of each thread
    for event in events:
        call = open_calls.get(event.thread)
        if event.kind == "op" and event.device == device:
            if call is None or event.start >= call[0].end:
                open_calls[event.thread] = event, []
                calls.append(open_calls[event.thread])
        elif event.kind == "kernel" and event.op and call is not None:
            call[1].append(event)
    return calls


def _with_transfers(speeds: Speeds, events: Iterable[Event], device: Device) -> Speeds:
    """The speeds with those of the profile's copies, if it has some."""
    copies = [
        event
        for event in events
        if event.kind in ("upload", "download") and event.device == str(device) and event.seconds > 0
    ]
    if not copies:
        return speeds
    rows = [
        [1.0, event.nbytes * (event.kind == "upload"), event.nbytes * (event.kind == "download")]
        for event in copies
    ]
    known = [speeds.transfer, speeds.per_byte_up, speeds.per_byte_down]
    transfer, up, down = _robust(rows, [event.seconds for event in copies], known)
    return replace(speeds, transfer=transfer, per_byte_up=up, per_byte_down=down)


def _robust(rows: Sequence[Sequence[float]], seconds: Sequence[float], known: Sequence[float]) -> list[float]:
    """Factors of the columns, none negative, that explain the seconds: relative errors, Huber's weights."""
    scale = np.array([value or 1e-12 for value in known])
    equations = np.array(rows) / np.array(seconds)[:, None] * scale
    prior = PRIOR * np.eye(len(scale))
    weights = np.ones(len(equations))
    for _ in range(ROUNDS):
        left = np.vstack([equations * weights[:, None], prior])
        right = np.concatenate([weights, np.full(len(scale), PRIOR)])
        solution = _nonnegative(left, right)
        errors = np.abs(equations @ solution - 1)
        weights = np.sqrt(OUTLIER / np.maximum(errors, OUTLIER))
    return [float(value) for value in solution * scale]


def _nonnegative(left: Matrix, right: Matrix) -> Matrix:
    """Least squares without negative factors: whatever would be the most negative one is left out."""
    used = np.ones(left.shape[1], bool)
    solution = np.zeros(left.shape[1])
    while used.any():
        solution[:] = 0
        solution[used] = np.linalg.lstsq(left[:, used], right, rcond=None)[0]
        if solution.min() >= 0:
            break
        used[np.argmin(solution)] = False
    return solution
