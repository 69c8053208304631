"""The speeds of a device from what a profile measured there, by least squares.

Each op of the profile is an equation: its seconds are those of one launch, of the bytes of its operands and
its result, and of its floating point operations at the rate of its class of kernels. Launch and bandwidth
follow from the ops that declare no operations, and the rates from what these leave of the others: solved for
together, slow products with large operands would pass for a slow memory.

Kernels of a class are not equally fast, and no rate suits all of them. With the one that is taken the class
takes, in all, what it took in the profile: a step like the one that was measured is predicted well. For the
same reason launch and bandwidth come from least squares with the weights of a Poisson regression (McCullagh
and Nelder, "Generalized Linear Models", chapter 9). Of calls with the same operands the median counts, so
that a call that was interrupted has no weight. What a profile does not determine stays close to what was
known before.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dl4all.errors import ArgumentError
from dl4all.runtime.profiler.recorder import RecordedEvent
from dl4all.runtime.records import speed_records
from dl4all.runtime.registry import hardware_name
from dl4all.runtime.work import Speeds
from dl4all.scheduler.cost.cost_model import calibrated
from dl4all.scheduler.device.device import Device
from dl4all.scheduler.monitor.profile import Profile

PRIOR = 1e-2  # the weight of what was known before, where an op has 1
LEAST = 1e-2  # the smallest share of a time that operations have, and that counts as predicted in weights
ROUNDS = 20  # of weighting the equations anew

Matrix = npt.NDArray[np.float64]


class Sample(NamedTuple):
    """The time of one op; of several calls with the same operands, the median."""

    kind: str  # the class of kernels
    nbytes: float
    flops: float
    seconds: float
    calls: int = 1


def fit(profile: Profile | Iterable[RecordedEvent], device: Device) -> Speeds:
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
        dict_keys(['linalg.matmul'])
    """
    events = profile.events if isinstance(profile, Profile) else list(profile)
    found = samples(events, device)
    if not found:
        raise ArgumentError(
            f"[fit] nothing in the profile ran on {device}; profile a model that is there, with its inputs"
        )
    prior = calibrated(hardware_name(device.name), device.info)
    launch, per_byte = prior.launch, prior.per_byte
    if plain := [sample for sample in found if not sample.flops]:
        rows = [[1.0, sample.nbytes] for sample in plain]
        launch, per_byte = _factors(rows, plain, [launch, per_byte])
    computing: dict[str, list[Sample]] = {}
    for sample in found:
        if sample.flops:
            computing.setdefault(sample.kind, []).append(sample)
    per_flop = {kind: _rate(of_kind, launch, per_byte) for kind, of_kind in sorted(computing.items())}
    fitted = replace(prior, launch=launch, per_byte=per_byte, per_flop_of=per_flop)
    return _with_transfers(fitted, events, device)


def _rate(found: Sequence[Sample], launch: float, per_byte: float) -> float:
    """Seconds of an operation with which a class of kernels takes, in all, what its samples took."""
    seconds = sum(sample.calls * sample.seconds for sample in found)
    rest = seconds - sum(sample.calls * (launch + per_byte * sample.nbytes) for sample in found)
    return max(rest, LEAST * seconds) / sum(sample.calls * sample.flops for sample in found)


def keep(speeds: Speeds, device: Device) -> None:
    """Let :func:`dl4all.scheduler.cost.cost_model.speeds` go by these from now on, in later processes too."""
    speed_records.store(hardware_name(device.name), device.info, speeds)


def samples(events: Iterable[RecordedEvent], device: Device) -> list[Sample]:
    """The times of the ops on a device.

    On a host it is the time of the call. Elsewhere an op takes the time of its kernels, or that to record
    one if it is longer: then the device waits for the host. Recording takes what it usually takes, as some
    calls wait until the device has done what it was given before.
    """
    ran = _outermost(events, str(device))
    usual = statistics.median(op.seconds for op, _ in ran) if ran else 0.0
    calls: dict[tuple[Any, ...], list[float]] = {}
    for op, kernels in ran:
        seconds = op.seconds if device.is_host else max(usual, sum(kernel.seconds for kernel in kernels))
        calls.setdefault((op.name, op.kernel_class, op.shapes, op.nbytes, op.flops), []).append(seconds)
    return [
        Sample(kind, nbytes, flops, statistics.median(seconds), len(seconds))
        for (_, kind, _, nbytes, flops), seconds in calls.items()
        if statistics.median(seconds) > 0
    ]


def _outermost(
    events: Iterable[RecordedEvent], device: str
) -> list[tuple[RecordedEvent, list[RecordedEvent]]]:
    """Each op that no other op called, with the kernels that it and those that it called launched."""
    calls: list[tuple[RecordedEvent, list[RecordedEvent]]] = []
    open_calls: dict[int, tuple[RecordedEvent, list[RecordedEvent]]] = {}  # of each thread
    for event in events:
        call = open_calls.get(event.thread)
        if event.kind == "op" and event.device == device:
            if call is None or event.start >= call[0].end:
                open_calls[event.thread] = event, []
                calls.append(open_calls[event.thread])
        elif event.kind == "kernel" and event.op and call is not None:
            call[1].append(event)
    return calls


def _with_transfers(speeds: Speeds, events: Iterable[RecordedEvent], device: Device) -> Speeds:
    """The speeds with those of the profile's copies, if it has some."""
    copies: dict[tuple[str, int], list[float]] = {}
    for event in events:
        if event.kind in ("upload", "download") and event.device == str(device) and event.seconds > 0:
            copies.setdefault((event.kind, event.nbytes), []).append(event.seconds)
    if not copies:
        return speeds
    rows = [[1.0, nbytes * (kind == "upload"), nbytes * (kind == "download")] for kind, nbytes in copies]
    known = [speeds.transfer, speeds.per_byte_up, speeds.per_byte_down]
    taken = [
        Sample(kind, nbytes, 0, statistics.median(times), len(times))
        for (kind, nbytes), times in copies.items()
    ]
    transfer, up, down = _factors(rows, taken, known)
    return replace(speeds, transfer=transfer, per_byte_up=up, per_byte_down=down)


def _factors(rows: Sequence[Sequence[float]], found: Sequence[Sample], known: Sequence[float]) -> list[float]:
    """Factors of the columns, none negative, that give the samples' seconds, by what is known too."""
    scale = np.array([value or 1e-12 for value in known])
    measured = np.array([sample.seconds for sample in found])
    counts = np.array([float(sample.calls) for sample in found])
    equations = np.array(rows) * scale
    prior = PRIOR * np.eye(len(scale))
    predicted = measured
    for _ in range(ROUNDS):
        # In units of the mean, so that the weight of what is known does not depend on how long ops take.
        weights = np.sqrt(counts / np.maximum(predicted, LEAST * measured) / measured.mean())
        left = np.vstack([equations * weights[:, None], prior])
        right = np.concatenate([measured * weights, np.full(len(scale), PRIOR)])
        solution = _nonnegative(left, right)
        predicted = equations @ solution
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
