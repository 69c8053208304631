"""Autotuning: chooses the fastest of several kernels that compute the same on a device.

A kernel declares a :class:`TuningSpace`: its candidates by name, a function that classifies problems, and a
rule that picks a candidate for a class without measurements. :func:`choose` follows the rule, or the
measurements if there are any: from ``dl4all tune``, or with ``DL4ALL_TUNE=lazy`` from the first problem of
a class. Measurements are stored on disk for each device and driver version. With ``DL4ALL_TUNE=0`` only the
rules count.

A candidate wins only if its result agrees with the result of the rule's candidate, and if it is clearly
faster. A candidate that computes something else, fails, or crashes the process is not used with that device
and driver again.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import math
import shutil
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from dl4all import config
from dl4all.errors import ArgumentError, DeviceError, DeviceLostError, Dl4allError, OutOfMemoryError
from dl4all.ops.core.tensor_base import TensorBase, from_host
from dl4all.runtime import fork
from dl4all.runtime.bounded_dict import BoundedDict
from dl4all.runtime.device_info import DeviceInfo
from dl4all.runtime.records import device_records, file_cache
from dl4all.scheduler import listeners
from dl4all.scheduler.device.device import Device

Q = TypeVar("Q")  # a problem
C = TypeVar("C")  # a candidate
Key: TypeAlias = tuple[int | str, ...]  # bools are ints

TOLERANCE = 1e-5  # of a result, relative to its largest element
GAIN = 0.05  # share of the time that a candidate must save; less may be noise
GIVE_UP_RATIO = 1.3  # a candidate that takes longer than the rule's by this factor is measured no further
EARLY_GIVE_UP_RATIO = 2.0  # the same before MIN_ROUNDS
ROUNDS = 15
MIN_ROUNDS = 5
MIN_SAMPLE_SECONDS = 2e-3  # of a measurement, unless that takes more than MAX_RUNS
MAX_RUNS = 50
LAZY_SECONDS = 1.0  # for tuning a class while computing
TUNING_SECONDS = 60.0  # for all that a compiled function computes
LAZY_TOTAL_SECONDS = 20.0  # for all classes of a process
MOST_CLASSES = 1024  # whose choices a device keeps in memory
NAN = 0xFFFFFFFF  # fills a result before a candidate writes it

logger = logging.getLogger("dl4all")
clock = time.perf_counter


class Work(NamedTuple, Generic[C]):
    """A problem with random operands: ``run`` computes it with a candidate and fills ``out``."""

    run: Callable[[C], None]
    out: TensorBase


@dataclass(frozen=True, eq=False)
class TuningSpace(Generic[Q, C]):
    """The candidates of a kernel.

    Args:
        name: the name under which results are stored.
        candidates: by name. Their ``repr`` must be the same in every process and describe them completely:
            results that were measured among other candidates do not count.
        key: returns the class of a problem. However many there are, a device keeps the choices of the
            ``MOST_CLASSES`` that were decided last.
        rule: returns names in order of preference, from properties of the device and the class only.
        fits: whether a device can run a candidate for problems of a class.
        prepare: returns a problem like the given one, in memory of its own.
        problems: names and problems that ``dl4all tune`` measures.
        tolerance: by how much a candidate's result may differ from the rule's, relative to its largest.
        needs: features without which a device has nothing to choose from, and ``dl4all tune`` passes by.
        version: incremented when kernels change so much that old results do not count.
    """

    name: str
    candidates: Mapping[str, C]
    key: Callable[[Q], Key]
    rule: Callable[[DeviceInfo, Key], Sequence[str]]
    fits: Callable[[Device, C, Key], bool]
    prepare: Callable[[Device, Q], Work[C]]
    problems: Sequence[tuple[str, Q]] = ()
    tolerance: float = TOLERANCE
    needs: frozenset[str] = frozenset()
    version: int = 1

    @functools.cached_property
    def fingerprint(self) -> str:
        """A digest that changes with the declaration."""
        return device_records.digest([self.version, {name: repr(c) for name, c in self.candidates.items()}])

    def usual(self, device: Device, key: Key) -> str:
        """The candidate that the rule picks for a device."""
        for name in self.rule(device.info, key):
            if self.fits(device, self.candidates[name], key):
                return name
        raise ArgumentError(f"[{self.name}] no kernel fits {device} for {key}; use the CPU")


class Outcome(NamedTuple):
    """The result of a search. ``seconds`` are medians, of the candidates that were measured."""

    usual: str
    chosen: str
    seconds: dict[str, float]
    refused: dict[str, str]  # with the reason
    finished: bool  # False if the time did not suffice


@dataclass
class _TuningState:
    """The choices for a device in this process."""

    mode: str = field(default_factory=config.tune_setting)
    chosen: BoundedDict[tuple[str, Key], Any] = field(default_factory=lambda: BoundedDict(MOST_CLASSES))
    # Classes without a result on disk for which nothing could be chosen for good.
    unknown: BoundedDict[tuple[str, Key], None] = field(default_factory=lambda: BoundedDict(MOST_CLASSES))
    seconds: float = LAZY_TOTAL_SECONDS  # left for tuning while computing
    searching: bool = False
    lock: threading.RLock = field(default_factory=fork.rlock)


SPACES: dict[str, TuningSpace[Any, Any]] = {}
"""Every declared space by name."""


def declare(space: TuningSpace[Q, C]) -> TuningSpace[Q, C]:
    """Register a space for ``dl4all tune``."""
    if space.name in SPACES:
        raise ValueError(f"[{space.name}] is declared twice")
    SPACES[space.name] = space
    return space


class UninitializedTensor(TensorBase):
    """An internal tensor, for measurements."""

    __slots__ = ()


UninitializedTensor.result_class = UninitializedTensor


def uninitialized(device: Device, *shape: int) -> Any:
    """A tensor of normally distributed numbers, for :class:`Work`."""
    block = np.random.default_rng(0).standard_normal(4093, np.float32)  # a prime: rows are not all alike
    return from_host(UninitializedTensor, np.resize(block, shape), device, copy=False)


def choose(space: TuningSpace[Q, C], device: Device, problem: Q) -> C:
    """The candidate to run a problem with; cached for each class."""
    key = space.key(problem)
    state = device.tables.get("tuning")
    if state is not None:
        candidate: C | None = state.chosen.get((space.name, key))
        if candidate is not None:
            return candidate
    return _decide(space, device, problem, key)


def _decide(space: TuningSpace[Q, C], device: Device, problem: Q, key: Key) -> C:
    """Choose from the results on disk, by tuning if that is lazy, or by the rule."""
    state = _state(device)
    with state.lock:
        name, final = None, True
        if state.mode != "off" and (space.name, key) not in state.unknown:
            name = stored_choice(space, device, key)
        if name is None:
            state.unknown[space.name, key] = None
            if state.mode == "lazy" and state.seconds > 0:
                name, final = _tune_lazily(space, device, problem, state)
        candidate = space.candidates[space.usual(device, key) if name is None else name]
        if not final:
            listeners.unplanned()
        else:
            state.chosen[space.name, key] = candidate
            state.unknown.pop((space.name, key), None)
        return candidate


@contextlib.contextmanager
def tuning(device: Device, seconds: float = TUNING_SECONDS) -> Iterator[None]:
    """Within, what a device computes is tuned first, unless it was; for `seconds` in all."""
    state = _state(device)
    with state.lock:
        before = state.mode, state.seconds
        state.mode, state.seconds = "lazy", seconds
        state.chosen.clear()  # what the rule chose is looked at again
        device.plans.clear()
    try:
        yield
    finally:
        with state.lock:
            state.mode, state.seconds = before


def _tune_lazily(
    space: TuningSpace[Q, C], device: Device, problem: Q, state: _TuningState
) -> tuple[str | None, bool]:
    """The tuned choice, and whether it is final: nothing is tuned within a search or a profile."""
    if state.searching or listeners.profiled():
        return None, False
    start = clock()
    try:
        with device_records.alone(0.0) as locked:
            if not locked:
                return None, False
            outcome = tune(space, device, problem, min(LAZY_SECONDS, state.seconds))
    except Dl4allError as error:  # the kernel raises it again when it is used
        logger.debug("[%s] was not tuned on %s: %s", space.name, device, error)
        return None, True
    finally:
        state.seconds -= clock() - start
    return outcome.chosen, True


def tune(space: TuningSpace[Q, C], device: Device, problem: Q, seconds: float) -> Outcome:
    """Find the fastest candidate for a problem, store it on disk, and use it from now on.

    The caller must keep other processes from tuning at the same time, by
    :func:`dl4all.runtime.records.device_records.alone`.

    Raises:
        OutOfMemoryError: the problem does not fit the device.
    """
    state, key = _state(device), space.key(problem)
    with state.lock:
        state.searching = True
        try:
            with listeners.suspended():
                outcome = search(space, device, problem, seconds)
        finally:
            state.searching = False
        if outcome.finished:
            words = _words(space, device, key)
            content = {"chosen": outcome.chosen, "usual": outcome.usual, "seconds": outcome.seconds}
            device_records.write(device_records.file(_folder(device, space.name), words), words, content)
            if state.mode != "off":
                state.chosen[space.name, key] = space.candidates[outcome.chosen]
                device.plans.clear()
        return outcome


def search(space: TuningSpace[Q, C], device: Device, problem: Q, seconds: float) -> Outcome:
    """Measure the candidates in turn on random operands; starts nothing new after `seconds`."""
    deadline, key = clock() + seconds, space.key(problem)
    usual = space.usual(device, key)
    refused = _refused(space, device, dead=True)
    fitting = [name for name, c in space.candidates.items() if name != usual and space.fits(device, c, key)]
    work = space.prepare(device, problem)
    # First runs, which compile, take at most half of the time.
    agreeing = _agreeing(space, device, work, usual, fitting, refused, deadline - seconds / 2)
    run = {name: functools.partial(work.run, space.candidates[name]) for name in (usual, *agreeing)}
    run_seconds = max(sample(run[usual], 1, device), MIN_SAMPLE_SECONDS / MAX_RUNS)
    runs = min(MAX_RUNS, math.ceil(MIN_SAMPLE_SECONDS / run_seconds))
    seconds_of: dict[str, list[float]] = {name: [] for name in run}
    racing = agreeing
    while racing and len(seconds_of[usual]) < ROUNDS and clock() < deadline:
        for name in (usual, *racing):
            seconds_of[name].append(sample(run[name], runs, device))
        limit = GIVE_UP_RATIO if len(seconds_of[usual]) >= MIN_ROUNDS else EARLY_GIVE_UP_RATIO
        racing = [name for name in racing if statistics.median(_ratios(seconds_of, name, usual)) < limit]
    enough = len(seconds_of[usual]) >= MIN_ROUNDS
    return Outcome(
        usual,
        chosen=_fastest(seconds_of, racing if enough else [], usual),
        seconds={name: statistics.median(times) for name, times in seconds_of.items() if times},
        refused=refused,
        finished=enough or (not racing and all(name in run or name in refused for name in fitting)),
    )


def _agreeing(
    space: TuningSpace[Q, C],
    device: Device,
    work: Work[C],
    usual: str,
    fitting: Sequence[str],
    refused: dict[str, str],
    deadline: float,
) -> list[str]:
    """The candidates whose results agree with the usual one's, until the deadline; refuses others."""
    expected = _result(work, space.candidates[usual], device)
    if not np.isfinite(expected).all():
        raise DeviceError(f"[{space.name}] {usual} computes no numbers on {device}; try dl4all doctor")
    agreeing = []
    for name in fitting:
        if clock() >= deadline:
            break
        if name not in refused:
            with _attempt(space, device, name, refused):
                mistake = _mistake(work, space.candidates[name], device, expected, usual, space.tolerance)
                if mistake:
                    refused[name] = mistake
                else:
                    agreeing.append(name)
    return agreeing


def _result(work: Work[C], candidate: C, device: Device) -> npt.NDArray[Any]:
    """The result of a candidate; nan where it writes nothing."""
    device.fill(work.out.storage, NAN)
    work.run(candidate)
    return work.out.on_host().copy()


def _mistake(
    work: Work[C],
    candidate: C,
    device: Device,
    expected: npt.NDArray[Any],
    usual: str,
    tolerance: float,
) -> str:
    """A description of what is wrong with a candidate's result; empty if nothing is."""
    try:
        result = _result(work, candidate, device)
    except (OutOfMemoryError, DeviceLostError):
        raise
    except Dl4allError as error:
        return f"failed: {error}"
    with np.errstate(all="ignore"):
        deviation = float(np.abs(result - expected).max() / np.abs(expected).max())
    return "" if deviation <= tolerance else f"differs from {usual} by {deviation:.1e} of the largest result"


def sample(work: Callable[[], None], times: int, device: Device) -> float:
    """Mean seconds of a run, measured over `times` runs until the device has finished."""
    device.synchronize()
    start = clock()
    for _ in range(times):
        work()
    device.synchronize()
    return (clock() - start) / times


def _ratios(seconds_of: Mapping[str, Sequence[float]], name: str, usual: str) -> list[float]:
    """A candidate's times over the usual one's, by rounds, so that slow rounds of both do not count."""
    return [own / other for own, other in zip(seconds_of[name], seconds_of[usual], strict=False)]


def _fastest(seconds_of: Mapping[str, Sequence[float]], racing: Sequence[str], usual: str) -> str:
    """The winner: better by GAIN in the median and in the best time, and faster in three of four rounds."""
    best, best_ratio = usual, 1 - GAIN
    for name in racing:
        ratios = sorted(_ratios(seconds_of, name, usual))
        median, upper_quartile = statistics.median(ratios), ratios[3 * len(ratios) // 4]
        gains = min(seconds_of[name]) < (1 - GAIN) * min(seconds_of[usual])
        if median < best_ratio and upper_quartile < 1 and gains:
            best, best_ratio = name, median
    return best


# Results on disk


def stored_choice(space: TuningSpace[Q, C], device: Device, key: Key) -> str | None:
    """The stored choice for a class of problems; None if there is none that can be used."""
    words = _words(space, device, key)
    content = _read(device_records.file(_folder(device, space.name), words), words)
    name = str(content.get("chosen"))
    if name not in space.candidates or name in _refused(space, device):
        return None
    return name if space.fits(device, space.candidates[name], key) else None


def forget(device: Device, name: str) -> int:
    """Remove the results of a space for a device and its driver; returns the number of classes."""
    folder = file_cache.folder() / _folder(device, name)
    count = len(list(folder.glob("*.json")))
    shutil.rmtree(folder, ignore_errors=True)
    device.tables.pop("tuning", None)
    device.plans.clear()
    return count


def _state(device: Device) -> _TuningState:
    if "tuning" not in device.tables:
        device.tables["tuning"] = _TuningState()
    state: _TuningState = device.tables["tuning"]
    return state


def _folder(device: Device, *names: str) -> str:
    """The folder of a device's results, relative to the cache."""
    return "/".join(
        ("tuning", device_records.digest(device_records.identity(device.name, device.info)), *names)
    )


def _words(space: TuningSpace[Q, C], device: Device, *parts: Any) -> list[Any]:
    """The identity of a record: device, driver, space and more parts."""
    words = [list(part) if isinstance(part, tuple) else part for part in parts]
    return [*device_records.identity(device.name, device.info), space.name, space.fingerprint, *words]


def _read(file: Path, words: list[Any]) -> dict[str, Any]:
    """A record's content; empty if there is none or it cannot be read."""
    try:
        return device_records.read(file, words) or {}
    except (ValueError, TypeError) as error:
        logger.warning("a result of tuning is left out, %s: %s", error, file)
        return {}


def _refused(space: TuningSpace[Q, C], device: Device, *, dead: bool = False) -> dict[str, str]:
    """The candidates that must not be used on a device, with the reasons.

    With `dead` no other process is tuning, so a candidate that is noted as being tried ended its process.
    """
    words = _words(space, device, "refused")
    content = _read(device_records.file(_folder(device, space.name, "refused"), words), words)
    found = content.get("refused")
    refused = {str(n): str(reason) for n, reason in found.items()} if isinstance(found, dict) else {}
    trying = content.get("trying")
    if dead and trying:
        refused[str(trying)] = "the process ended while it was tried"
    return refused


def _write_refused(
    space: TuningSpace[Q, C], device: Device, refused: dict[str, str], trying: str = ""
) -> None:
    words = _words(space, device, "refused")
    content = {"refused": refused, "trying": trying}
    device_records.write(device_records.file(_folder(device, space.name, "refused"), words), words, content)


@contextlib.contextmanager
def _attempt(space: TuningSpace[Q, C], device: Device, name: str, refused: dict[str, str]) -> Iterator[None]:
    """Note the first run of a candidate on disk, so that the next process knows it if this one dies."""
    _write_refused(space, device, refused, name)
    try:
        yield
    except DeviceLostError:  # as bad as a dead process: the note stays
        raise
    except BaseException:
        _write_refused(space, device, refused)
        raise
    _write_refused(space, device, refused)
