"""Which of several kernels that compute the same is the fastest on a device.

A kernel declares a :class:`Space`: its candidates by name, how problems are put into classes, and a rule
that picks a candidate for a class without measuring anything. :func:`choose` follows the rule, or what was
found by trying where somebody asked for that: with ``dl4all tune``, or with ``DL4ALL_TUNE=lazy`` when a class
is first met. What was found is kept on disk for each device and driver version. With ``DL4ALL_TUNE=0`` the
rules alone count.

A candidate may win only if its result agrees with that of the rule's, and if it is clearly faster. One that
computes something else, fails, or takes the process with it is not used on that device and driver again.
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
from dl4all.runtime import device_records, file_cache
from dl4all.runtime.device_info import DeviceInfo
from dl4all.runtime.profiler import recorder
from dl4all.scheduler.device import Device

Q = TypeVar("Q")  # a problem
C = TypeVar("C")  # a candidate
Key: TypeAlias = tuple[int | str, ...]  # bools are ints

TOLERANCE = 1e-5  # of the largest result
GAIN = 0.05  # of the time that a candidate must save; less may be noise, or change with the weather
SLOWER = 1.3  # times the rule's time, from where on a candidate is not tried further,
MUCH_SLOWER = 2.0  # or not even LEAST_ROUNDS
ROUNDS = 15
LEAST_ROUNDS = 5
SAMPLE = 2e-3  # seconds that are worth timing at least,
MOST = 50  # or so many runs
LAZY_SECONDS = 1.0  # for a class that is met while computing
LAZY_ALL = 20.0  # for all of them, in a process
NAN = 0xFFFFFFFF  # what lies in a result before a candidate writes it

logger = logging.getLogger("dl4all")
clock = time.perf_counter


class Work(NamedTuple, Generic[C]):
    """A problem of made-up numbers: ``run`` computes it with a candidate, and fills ``out``."""

    run: Callable[[C], None]
    out: TensorBase


@dataclass(frozen=True, eq=False)
class Space(Generic[Q, C]):
    """The ways to run a kernel.

    Args:
        name: what results are kept under.
        candidates: by name. Their ``repr`` is the same in every process, and says all that matters: results
            that were found among others do not count.
        key: the class of a problem, of some ten that differ in what is fast.
        rule: names in order of preference, by no more than what the device is and the class.
        fits: whether a device can run a candidate for problems of a class.
        prepare: a problem like the one given, in memory of its own.
        problems: those that ``dl4all tune`` looks at, with what they are called.
        version: raised when the kernels change so much that old results do not count.
    """

    name: str
    candidates: Mapping[str, C]
    key: Callable[[Q], Key]
    rule: Callable[[DeviceInfo, Key], Sequence[str]]
    fits: Callable[[Device, C, Key], bool]
    prepare: Callable[[Device, Q], Work[C]]
    problems: Sequence[tuple[str, Q]] = ()
    version: int = 1

    @functools.cached_property
    def fingerprint(self) -> str:
        """What tells this declaration from a later one."""
        return device_records.digest([self.version, {name: repr(c) for name, c in self.candidates.items()}])

    def usual(self, device: Device, key: Key) -> str:
        """What the rule picks for a device."""
        for name in self.rule(device.info, key):
            if self.fits(device, self.candidates[name], key):
                return name
        raise ArgumentError(f"[{self.name}] no kernel fits {device} for {key}; use the CPU")


class Outcome(NamedTuple):
    """What a search found. ``seconds`` are medians; candidates that were left out have none."""

    usual: str
    chosen: str
    seconds: dict[str, float]
    refused: dict[str, str]  # and why
    finished: bool  # else there was no time to tell


@dataclass
class _State:
    """What is chosen on a device in this process."""

    mode: str = field(default_factory=config.tune_setting)
    chosen: dict[tuple[str, Key], Any] = field(default_factory=dict)
    unknown: set[tuple[str, Key]] = field(default_factory=set)  # of which nothing is on disk
    seconds: float = LAZY_ALL  # left for looking while computing
    searching: bool = False
    lock: threading.RLock = field(default_factory=threading.RLock)


SPACES: dict[str, Space[Any, Any]] = {}
"""All that can be tuned, by name."""


def declare(space: Space[Q, C]) -> Space[Q, C]:
    """Let ``dl4all tune`` know of a space."""
    if space.name in SPACES:
        raise ValueError(f"[{space.name}] is declared twice")
    SPACES[space.name] = space
    return space


class UninitializedTensor(TensorBase):
    """A tensor that no user sees."""

    __slots__ = ()


UninitializedTensor.result_class = UninitializedTensor


def uninitialized(device: Device, *shape: int) -> Any:
    """A tensor of normally distributed numbers, for :class:`Work`."""
    block = np.random.default_rng(0).standard_normal(4093, np.float32)  # a prime: rows are not all alike
    return from_host(UninitializedTensor, np.resize(block, shape), device, copy=False)


def choose(space: Space[Q, C], device: Device, problem: Q) -> C:
    """The candidate to run a problem with, from a table but for the first of its class."""
    key = space.key(problem)
    state = device.tables.get("tuning")
    if state is not None:
        found: C | None = state.chosen.get((space.name, key))
        if found is not None:
            return found
    return _decide(space, device, problem, key)


def _decide(space: Space[Q, C], device: Device, problem: Q, key: Key) -> C:
    state = _state(device)
    with state.lock:
        found, final = None, True
        if state.mode != "off" and (space.name, key) not in state.unknown:
            found = stored_choice(space, device, key)
        if found is None:
            state.unknown.add((space.name, key))
            if state.mode == "lazy" and state.seconds > 0:
                found, final = _lazily(space, device, problem, state)
        candidate = space.candidates[space.usual(device, key) if found is None else found]
        if final:
            state.chosen[space.name, key] = candidate
        return candidate


def _lazily(space: Space[Q, C], device: Device, problem: Q, state: _State) -> tuple[str | None, bool]:
    """What looking found, and whether that was possible now: never within a search or a profile."""
    if state.searching or recorder.active is not None:
        return None, False
    begun = clock()
    try:
        with device_records.alone(0.0) as may:
            if not may:
                return None, False
            found = tune(space, device, problem, min(LAZY_SECONDS, state.seconds))
    except Dl4allError as error:  # what the kernel itself says will come up when it is used
        logger.debug("[%s] was not tuned on %s: %s", space.name, device, error)
        return None, True
    finally:
        state.seconds -= clock() - begun
    return found.chosen, True


def tune(space: Space[Q, C], device: Device, problem: Q, seconds: float) -> Outcome:
    """Find the fastest candidate for a problem, keep it on disk, and use it from now on.

    Other processes must be kept from doing the same at once (:func:`dl4all.runtime.device_records.alone`).

    Raises:
        OutOfMemoryError: the problem does not fit the device.
    """
    state, key = _state(device), space.key(problem)
    with state.lock:
        state.searching = True
        try:
            found = search(space, device, problem, seconds)
        finally:
            state.searching = False
        if found.finished:
            words = _words(space, device, key)
            content = {"chosen": found.chosen, "usual": found.usual, "seconds": found.seconds}
            device_records.write(device_records.file(_folder(device, space.name), words), words, content)
            if state.mode != "off":
                state.chosen[space.name, key] = space.candidates[found.chosen]
        return found


def search(space: Space[Q, C], device: Device, problem: Q, seconds: float) -> Outcome:
    """Try the candidates on made-up numbers, in turn; after so many seconds nothing new is begun."""
    until, key = clock() + seconds, space.key(problem)
    usual = space.usual(device, key)
    refused = _refused(space, device, dead=True)
    fitting = [name for name, c in space.candidates.items() if name != usual and space.fits(device, c, key)]
    work = space.prepare(device, problem)
    # Half of the time at most goes into first runs, which compile.
    agreeing = _agreeing(space, device, work, usual, fitting, refused, until - seconds / 2)
    run = {name: functools.partial(work.run, space.candidates[name]) for name in (usual, *agreeing)}
    times = min(MOST, math.ceil(SAMPLE / max(sample(run[usual], 1, device), SAMPLE / MOST)))
    found: dict[str, list[float]] = {name: [] for name in run}
    racing = agreeing
    while racing and len(found[usual]) < ROUNDS and clock() < until:
        for name in (usual, *racing):
            found[name].append(sample(run[name], times, device))
        limit = SLOWER if len(found[usual]) >= LEAST_ROUNDS else MUCH_SLOWER
        racing = [name for name in racing if statistics.median(_ratios(found, name, usual)) < limit]
    enough = len(found[usual]) >= LEAST_ROUNDS
    return Outcome(
        usual,
        chosen=_fastest(found, racing if enough else [], usual),
        seconds={name: statistics.median(times) for name, times in found.items() if times},
        refused=refused,
        finished=enough or (not racing and all(name in run or name in refused for name in fitting)),
    )


def _agreeing(
    space: Space[Q, C],
    device: Device,
    work: Work[C],
    usual: str,
    fitting: Sequence[str],
    refused: dict[str, str],
    until: float,
) -> list[str]:
    """Those that give the usual candidate's numbers, as far as there is time; others are refused."""
    expected = _result(work, space.candidates[usual], device)
    if not np.isfinite(expected).all():
        raise DeviceError(f"[{space.name}] {usual} computes no numbers on {device}; try dl4all doctor")
    agreeing = []
    for name in fitting:
        if clock() >= until:
            break
        if name not in refused:
            with _attempt(space, device, name, refused):
                problem = _problem(work, space.candidates[name], device, expected, usual)
                if problem:
                    refused[name] = problem
                else:
                    agreeing.append(name)
    return agreeing


def _result(work: Work[C], candidate: C, device: Device) -> npt.NDArray[Any]:
    device.fill(work.out.storage, NAN)
    work.run(candidate)
    return work.out.on_host().copy()


def _problem(work: Work[C], candidate: C, device: Device, expected: npt.NDArray[Any], usual: str) -> str:
    """What is wrong with a candidate's result; empty if nothing is."""
    try:
        got = _result(work, candidate, device)
    except (OutOfMemoryError, DeviceLostError):
        raise
    except Dl4allError as error:
        return f"failed: {error}"
    with np.errstate(all="ignore"):
        far = float(np.abs(got - expected).max() / np.abs(expected).max())
    return "" if far <= TOLERANCE else f"differs from {usual} by {far:.1e} of the largest result"


def sample(work: Callable[[], None], times: int, device: Device) -> float:
    """Seconds for each of so many runs, until the last result is there."""
    device.synchronize()
    begun = clock()
    for _ in range(times):
        work()
    device.synchronize()
    return (clock() - begun) / times


def _ratios(found: Mapping[str, Sequence[float]], name: str, usual: str) -> list[float]:
    """A candidate's times by the usual one's of the same rounds: what slows both down does not count."""
    return [mine / other for mine, other in zip(found[name], found[usual], strict=False)]


def _fastest(found: Mapping[str, Sequence[float]], racing: Sequence[str], usual: str) -> str:
    """The candidate that wins: by GAIN in the median and at its best, and in three of four rounds at all."""
    best, least = usual, 1 - GAIN
    for name in racing:
        ratios = sorted(_ratios(found, name, usual))
        middle, most = statistics.median(ratios), ratios[3 * len(ratios) // 4]
        if middle < least and most < 1 and min(found[name]) < (1 - GAIN) * min(found[usual]):
            best, least = name, middle
    return best


# What is on disk


def stored_choice(space: Space[Q, C], device: Device, key: Key) -> str | None:
    """What was found for a class of problems; None if nothing was that can be used."""
    words = _words(space, device, key)
    content = _read(device_records.file(_folder(device, space.name), words), words)
    name = str(content.get("chosen"))
    if name not in space.candidates or name in _refused(space, device):
        return None
    return name if space.fits(device, space.candidates[name], key) else None


def forget(device: Device, name: str) -> int:
    """Remove what was found about a space on a device as its driver is now; returns how many classes."""
    folder = file_cache.folder() / _folder(device, name)
    count = len(list(folder.glob("*.json")))
    shutil.rmtree(folder, ignore_errors=True)
    device.tables.pop("tuning", None)
    return count


def _state(device: Device) -> _State:
    if "tuning" not in device.tables:
        device.tables["tuning"] = _State()
    state: _State = device.tables["tuning"]
    return state


def _folder(device: Device, *names: str) -> str:
    return "/".join(
        ("tuning", device_records.digest(device_records.identity(device.name, device.info)), *names)
    )


def _words(space: Space[Q, C], device: Device, *rest: Any) -> list[Any]:
    what = [list(word) if isinstance(word, tuple) else word for word in rest]
    return [*device_records.identity(device.name, device.info), space.name, space.fingerprint, *what]


def _read(file: Path, words: list[Any]) -> dict[str, Any]:
    try:
        return device_records.read(file, words) or {}
    except (ValueError, TypeError) as error:
        logger.warning("a result of tuning is left out, %s: %s", error, file)
        return {}


def _refused(space: Space[Q, C], device: Device, *, dead: bool = False) -> dict[str, str]:
    """The candidates that must not be used on a device, and why.

    With `dead`, nobody else is tuning, so a candidate that is being tried has ended its process.
    """
    words = _words(space, device, "refused")
    content = _read(device_records.file(_folder(device, space.name, "refused"), words), words)
    refused = {str(name): str(why) for name, why in dict(content.get("refused", {})).items()}
    trying = content.get("trying")
    if dead and trying:
        refused[str(trying)] = "the process ended while it was tried"
    return refused


def _write_refused(space: Space[Q, C], device: Device, refused: dict[str, str], trying: str = "") -> None:
    words = _words(space, device, "refused")
    content = {"refused": refused, "trying": trying}
    device_records.write(device_records.file(_folder(device, space.name, "refused"), words), words, content)


@contextlib.contextmanager
def _attempt(space: Space[Q, C], device: Device, name: str, refused: dict[str, str]) -> Iterator[None]:
    """Surrounds the first run of a candidate, so that the next process learns of it if this one dies."""
    _write_refused(space, device, refused, name)
    try:
        yield
    except DeviceLostError:  # which is as bad
        raise
    except BaseException:
        _write_refused(space, device, refused)
        raise
    _write_refused(space, device, refused)
