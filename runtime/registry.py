"""All devices of this machine, their names, and which one ``auto`` is.

A name is ``cpu``, ``BACKEND:INDEX`` (``vulkan:0``, ``kompute:1``), ``BACKEND`` alone for index 0,
``gpu`` for the best real GPU, or ``auto``. ``null`` is never listed and must be named, in code or by
DL4ALL_DEVICE: a file that happens to lie in the working directory cannot. ``vulkan:0#1`` is
device ``vulkan:0`` opened once more, with memory and streams of its own.

A GPU that two drivers offer has an index from each, and both can be named; it is listed once, under the
better driver's. What is better may change when something is measured; what is here does not.
"""

from __future__ import annotations

import atexit
import dataclasses
import functools
import logging
import os
import sys
import threading
import time
import types
from collections.abc import Callable, Sequence
from typing import NamedTuple

from dl4all.config import calibrates_by_itself, device_setting, least_limits, shown
from dl4all.errors import BackendMissingError, ConfigError, DeviceError, UnknownDeviceError
from dl4all.runtime import fork, plugins, selection
from dl4all.runtime.device_info import DeviceInfo
from dl4all.runtime.plugins import DeviceSource
from dl4all.runtime.profiler import recorder
from dl4all.runtime.protocols import Backend
from dl4all.runtime.records import measurements
from dl4all.runtime.selection import Choice

NULL = "null:0"
logger = logging.getLogger("dl4all")


class Found(NamedTuple):
    """The devices that every driver offers, and for each backend that found nothing, why."""

    devices: tuple[DeviceInfo, ...]
    problems: dict[str, str]

    @property
    def vulkan_problem(self) -> str:
        """The reason that kept Vulkan from adding devices; empty if nothing did."""
        return self.problems.get("vulkan", "")


@functools.cache
def find() -> Found:
    """Look for devices once. Without anything else there is still the CPU.

    Raises:
        ConfigError: DL4ALL_LIMITS holds something unusable.
    """
    least_limits()  # before each backend trips over it and is left out
    loaded = plugins.load()
    problems = dict(loaded.refused)
    names: dict[DeviceInfo, list[str]] = {}  # backends of what they describe alike
    for name, source in loaded.sources.items():
        if name == "null":
            continue
        try:
            for info in _devices_of(name, source):
                names.setdefault(info, []).append(name)
        except DeviceError as error:
            problems[name] = str(error)
        except Exception as error:  # noqa: BLE001  # no backend may take the others away
            problems[name] = f"[{name}] looking for devices failed: {plugins.reason(error)}"
            logger.error("%s", problems[name])
    found = [dataclasses.replace(info, backends=tuple(backends)) for info, backends in names.items()]
    return Found(tuple(sorted(found, key=lambda info: info.type == "cpu")), problems)


def _devices_of(name: str, source: DeviceSource) -> list[DeviceInfo]:
    found = list(source.find())
    for info in found:
        if not isinstance(info, DeviceInfo):
            raise TypeError(f"find() gave {info!r}, which is no DeviceInfo")
        if (info.type == "cpu") != (name == "cpu"):
            raise ValueError("find() gave a device of type 'cpu', which only the CPU is; say 'software'")
    if len({info.index for info in found}) != len(found):
        raise ValueError("find() gave two devices of one index")
    return [dataclasses.replace(info, backends=()) for info in found]


def devices() -> tuple[DeviceInfo, ...]:
    """Every device of this machine once, the CPU last; ``others`` is a device through its other drivers.

    Some may compile only (:attr:`DeviceInfo.compiles_only`), and cannot be opened.

    Example:
        >>> import dl4all as dl
        >>> "cpu" in [name for info in dl.devices() for name in info.names]
        True
    """
    return selection.gather(find().devices, measurements.lookup)


def describe(name: str) -> DeviceInfo:
    """The facts of a device that can be named, without opening it.

    Raises:
        UnknownDeviceError, BackendMissingError: it is not here.
    """
    canonical = hardware_name(resolve(name))
    return next(info for info in find().devices if canonical in info.names)


def auto() -> Choice:
    """The device that ``device="auto"`` means, and why.

    Raises:
        ConfigError: DL4ALL_DEVICE or dl4all.toml names a device that is not here or compiles only, or the
            file names ``null``.
    """
    setting = device_setting()
    if setting is not None and setting.value != "auto":
        try:
            name = resolve(setting.value)
        except (UnknownDeviceError, BackendMissingError) as error:
            raise ConfigError(f"{setting.source}: {error}") from None
        if hardware_name(name) == NULL and setting.source != "DL4ALL_DEVICE":
            raise ConfigError(
                f"{setting.source}: {setting.value} computes nothing, and every result would be wrong "
                "without a word; set DL4ALL_DEVICE=null, or name it in the code"
            )
        if hardware_name(name) != NULL and describe(name).compiles_only:
            raise ConfigError(
                f"{setting.source}: {setting.value} compiles only, for hardware that is not here; "
                f"use auto or one of: {_known()}"
            )
        return Choice(name, f"{setting.source} says so")
    return selection.choose(devices(), measurements.lookup)


calibrator: Callable[[str], object] | None = None
"""Measures the device of a name and keeps the result; :mod:`dl4all.calibration` puts itself here."""

CALIBRATION_SECONDS = 60.0  # to wait for another process that measures
_measuring = fork.rlock()
_measured = False  # or found that it need not be, or cannot be
_begun = False


def measure_once() -> None:
    """Measure what ``auto`` and ``gpu`` have to choose from, where there is a real GPU and nobody has yet.

    Done at most once in a process; threads that come meanwhile wait. Nothing that goes wrong here is an
    error: without measurements the kind of a device decides. Not done while somebody profiles, who would
    see this instead of their own program.

    Raises:
        ConfigError: DL4ALL_CALIBRATE or dl4all.toml holds something unusable.
    """
    global _measured, _begun
    if _measured or calibrator is None or recorder.active is not None or fork.refused:
        return
    if not calibrates_by_itself():
        return
    with _measuring:
        if _begun:  # done by another thread, or under way in this one
            return
        _begun = True
        try:
            if selection.unmeasured(devices(), measurements.lookup):
                _measure(calibrator)
        except Exception as error:  # noqa: BLE001  # whatever it is, the user's program asked for something else
            logger.error("calibration failed: %s", plugins.reason(error))
        finally:
            _measured = True


def _measure(calibrate: Callable[[str], object]) -> None:
    with measurements.alone(CALIBRATION_SECONDS) as may:
        # Asked again: another process may have measured everything while this one waited.
        names = selection.unmeasured(devices(), measurements.lookup) if may else []
        if names:
            listed = ", ".join(names)
            logger.info("measuring once, for later runs too: %s (DL4ALL_CALIBRATE=0: never)", listed)
        for name in names:
            try:
                calibrate(name)
            except Exception as error:  # noqa: BLE001
                logger.warning("%s was not measured: %s", name, plugins.reason(error))


def resolve(name: str) -> str:
    """The canonical name, ``cpu`` or ``BACKEND:INDEX``, of a device that is here.

    Raises:
        UnknownDeviceError: no device has that name; the message lists those that are here.
        BackendMissingError: what the backend needs is absent; the message says how to get it.
    """
    if name == "auto":
        return _settled_auto()
    if name == "gpu":
        measure_once()
        names = [candidate.name for candidate in _gpus() if candidate.usable]
        if not names:
            why = "; ".join(candidate.remark for candidate in _gpus()) or "no GPU was found"
            raise UnknownDeviceError(f"{why}; use one of: {_known()}")
        return names[0]
    name, again, opening = name.partition("#")
    if again and not _is_index(opening):
        named, number = shown(name), shown(again + opening)
        raise UnknownDeviceError(f"no opening {number} of {named}; number them as in 'cpu#1'")
    if again and int(opening):
        return f"{resolve(name)}#{int(opening)}"
    backend, colon, digits = name.partition(":")
    known = {*plugins.load().sources, *plugins.load().refused}
    if backend not in known or (colon and not _is_index(digits)):
        raise UnknownDeviceError(f"unknown device {shown(name)}; use auto, gpu, or one of: {_known()}")
    index = int(digits or 0)
    canonical = "cpu" if backend == "cpu" and index == 0 else f"{backend}:{index}"
    if canonical == NULL or any(canonical in info.names for info in find().devices):
        return canonical
    if problem := find().problems.get(backend):
        raise BackendMissingError(problem)
    raise UnknownDeviceError(f"no device {shown(name)} here; use auto or one of: {_known()}")


def accelerators() -> list[str]:
    """The device that ``auto`` means, and after it every other GPU; none if that is the CPU."""
    first = _settled_auto()
    if hardware_name(first) == "cpu":
        return []
    own = () if hardware_name(first) == NULL else describe(first).names
    return [first, *(gpu.name for gpu in _gpus() if gpu.usable and gpu.name not in own)]


def _gpus() -> list[selection.Candidate]:
    """The real GPUs, the one to take first."""
    ordered = selection.candidates(devices(), measurements.lookup)
    return [candidate for candidate in ordered if candidate.info.is_gpu]


def _is_index(text: str) -> bool:
    """Whether a text is the number of a device or an opening; Python reads no number of 4300 digits."""
    return text.isascii() and text.isdigit() and len(text) < 10


def hardware_name(name: str) -> str:
    """The canonical name of a device without the number of its opening.

    >>> hardware_name("vulkan:0#1")
    'vulkan:0'
    """
    return name.partition("#")[0]


class _Settled(NamedTuple):
    """The device that ``auto`` was taken to be, and the facts from which that was concluded."""

    found: Found
    given: tuple[object, ...]
    name: str


_settled: _Settled | None = None


def _settled_auto() -> str:
    """The device that ``auto`` means, found out once: tensors made without a device must all end up on one.

    Neither a file that changes nor another process that measures moves it, only what this process does
    itself: to its environment, its working directory or its measurements.
    """
    global _settled
    variables = ("DL4ALL_DEVICE", "DL4ALL_CACHE_DIR", "DL4ALL_LIMITS")
    environment = os.environ
    # `in` first: `get` takes twice as long for what is not there, and each tensor that is made comes by here.
    values = [environment[name] if name in environment else None for name in variables]  # noqa: SIM401
    given = (*values, _working_directory(), measurements.changes)
    settled = _settled
    if settled is None or settled.found is not find() or settled.given != given:
        setting = device_setting()
        if setting is None or setting.value == "auto":
            measure_once()
        given = (*given[:-1], measurements.changes)
        settled = _settled = _Settled(find(), given, auto().name)
    return settled.name


def _working_directory() -> str:
    """Empty where it was deleted."""
    try:
        return os.getcwd()  # noqa: PTH109  # fast
    except OSError:
        return ""


def usable() -> list[DeviceInfo]:
    """The devices that can be opened, as :func:`devices` has them."""
    return [info for info in devices() if not info.compiles_only]


def _known() -> str:
    return ", ".join(name for device in usable() for name in device.names)


_opened: dict[str, Backend] = {}
_lock = fork.lock()

before_closing: list[Callable[[], None]] = []
"""Functions that :func:`close_all` calls first: threads that give work to devices end here."""


def _no_locks(backend: Backend) -> Sequence[threading.RLock]:
    return ()


locks_of: Callable[[Backend], Sequence[threading.RLock]] = _no_locks
"""The locks under which threads use a backend that is to be closed, in the order in which they ask for them;
:mod:`dl4all.scheduler.device.current` puts :func:`dl4all.scheduler.device.shutdown.locks_of` here."""

CLOSING_SECONDS = 10.0
"""The seconds that :func:`close_all` waits for calls of other threads that are under way in a device."""


def open_device(name: str) -> Backend:
    """The backend of device `name`, opened at the first call and closed when the process ends.

    Raises:
        ForkError: it is not the CPU, and this process was forked from one that had opened such a device.
        UnknownDeviceError, BackendMissingError, DeviceError
    """
    canonical = resolve(name)
    with _lock:
        if canonical not in _opened:
            backend, _, digits = hardware_name(canonical).partition(":")
            source, opening = plugins.load().sources[backend], int(canonical.partition("#")[2] or 0)
            if backend != "cpu":
                fork.open_driver(canonical)
            open_again = getattr(source, "open_again", None)
            if opening and open_again is not None:
                opened = open_again(int(digits or 0), opening)
            else:
                opened = source.open(int(digits or 0))
            # After each opening: exit functions run last in, first out, and the Vulkan instance that a device
            # was found with must outlive it.
            atexit.unregister(_close_at_exit)
            atexit.register(_close_at_exit)
            _opened[canonical] = opened
        return _opened[canonical]


def close_all() -> None:
    """Close every device that :func:`open_device` opened; what lives on them is gone.

    Calls of other threads that are under way end first, and later ones raise DeviceError.
    """
    _close(at_exit=False)


def _close_at_exit() -> None:
    _close(at_exit=True)


def _close(*, at_exit: bool) -> None:
    for function in before_closing:
        function()
    with _lock:
        while _opened:
            backend = _opened.popitem()[1]
            held = _exclude(backend)
            if held is None:
                if at_exit:
                    continue  # a driver does not survive that its device goes while a thread is in it
                held = []
            backend.close()
            if not at_exit:  # at the end, whoever comes now waits as long as the process lasts
                for lock in reversed(held):
                    lock.release()


def _exclude(backend: Backend) -> list[threading.RLock] | None:
    """Wait until no other thread is at work in a backend, and take the locks under which threads work in it.

    Returns:
        The locks; None if a thread is still in it after :data:`CLOSING_SECONDS`.
    """
    until = time.monotonic() + CLOSING_SECONDS
    held = list[threading.RLock]()
    for lock in locks_of(backend):
        if not lock.acquire(timeout=max(0.0, until - time.monotonic())):
            break
        held.append(lock)
    else:
        while _is_entered(backend):
            if time.monotonic() > until:
                break
            time.sleep(0.001)
        else:
            return held
    for lock in reversed(held):
        lock.release()
    return None


def _is_entered(backend: Backend) -> bool:
    """Whether another thread runs code of a backend that has a driver."""
    if not backend.capabilities.programs:
        return False
    package, own = type(backend).__module__.rpartition(".")[0], threading.get_ident()
    for number, frame in sys._current_frames().items():
        inner: types.FrameType | None = None if number == own else frame
        while inner is not None:
            if inner.f_globals.get("__name__", "").startswith(package):
                return True
            inner = inner.f_back
    return False


def _forked() -> None:
    """A child leaves its parent's devices open, but for those that have no driver."""
    for name, backend in list(_opened.items()):
        if backend.capabilities.programs:
            fork.keep_for_ever(_opened.pop(name))


fork.in_child(_forked)
