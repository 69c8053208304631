"""All devices of this machine, their names, and which one ``auto`` is.

A name is ``cpu``, ``BACKEND:INDEX`` (``vulkan:0``, ``kompute:1``), ``BACKEND`` alone for index 0,
``gpu`` for the best real GPU, or ``auto``. ``null`` is never listed and must be named.
"""

from __future__ import annotations

import atexit
import dataclasses
import functools
import logging
import threading
from typing import NamedTuple

from dl4all.config import device_setting, least_limits
from dl4all.errors import BackendMissingError, ConfigError, DeviceError, UnknownDeviceError
from dl4all.runtime import measurements, plugins, selection
from dl4all.runtime.backend import Backend
from dl4all.runtime.info import DeviceInfo
from dl4all.runtime.plugins import Source
from dl4all.runtime.selection import Choice

NULL = "null:0"
logger = logging.getLogger("dl4all")


class Found(NamedTuple):
    """The machine's devices, and for each backend that found none, why."""

    devices: tuple[DeviceInfo, ...]
    problems: dict[str, str]

    @property
    def vulkan_problem(self) -> str:
        """What kept Vulkan from adding devices; empty if nothing did."""
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


def _devices_of(name: str, source: Source) -> list[DeviceInfo]:
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
    """Every device of this machine, the CPU last."""
    return find().devices


def auto() -> Choice:
    """The device that ``device="auto"`` means, and why.

    Raises:
        ConfigError: DL4ALL_DEVICE or dl4all.toml names a device that is not here.
    """
    setting = device_setting()
    if setting is not None and setting.value != "auto":
        try:
            return Choice(resolve(setting.value), f"{setting.source} says so")
        except (UnknownDeviceError, BackendMissingError) as error:
            raise ConfigError(f"{setting.source}: {error}") from None
    return selection.choose(devices(), measurements.lookup)


def resolve(name: str) -> str:
    """The canonical name, ``cpu`` or ``BACKEND:INDEX``, of a device that is here.

    Raises:
        UnknownDeviceError: no device has that name; the message lists those that are here.
        BackendMissingError: what the backend needs is absent; the message says how to get it.
    """
    if name == "auto":
        return auto().name
    if name == "gpu":
        ordered = selection.candidates(devices(), measurements.lookup)
        gpus = [candidate.name for candidate in ordered if candidate.info.is_gpu and candidate.usable]
        if not gpus:
            raise UnknownDeviceError(f"no GPU was found; use one of: {_known()}")
        return gpus[0]
    backend, colon, digits = name.partition(":")
    known = {*plugins.load().sources, *plugins.load().refused}
    if backend not in known or (colon and not (digits.isascii() and digits.isdigit())):
        raise UnknownDeviceError(f"unknown device {name!r}; use auto, gpu, or one of: {_known()}")
    index = int(digits or 0)
    canonical = "cpu" if backend == "cpu" and index == 0 else f"{backend}:{index}"
    if canonical == NULL or any(canonical in device.names for device in devices()):
        return canonical
    if problem := find().problems.get(backend):
        raise BackendMissingError(problem)
    raise UnknownDeviceError(f"no device {name!r} here; use auto or one of: {_known()}")


def _known() -> str:
    return ", ".join(name for device in devices() for name in device.names)


_opened: dict[str, Backend] = {}
_lock = threading.Lock()


def open_device(name: str) -> Backend:
    """The backend of device `name`, opened at the first call and closed when the process ends.

    Raises:
        UnknownDeviceError, BackendMissingError, DeviceError
    """
    canonical = resolve(name)
    with _lock:
        if canonical not in _opened:
            backend, _, digits = canonical.partition(":")
            opened = plugins.load().sources[backend].open(int(digits or 0))
            if not _opened:
                # Not at import: exit functions run last in, first out, and the Vulkan instance
                # that devices were found with must outlive them.
                atexit.register(close_all)
            _opened[canonical] = opened
        return _opened[canonical]


def close_all() -> None:
    """Close every device that :func:`open_device` opened; what lives on them is gone. Runs at exit."""
    with _lock:
        while _opened:
            _opened.popitem()[1].close()
