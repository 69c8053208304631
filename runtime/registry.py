"""All devices of this machine, their names, and which one ``auto`` is.

A name is ``cpu``, ``BACKEND:INDEX`` (``vulkan:0``, ``kompute:1``), ``BACKEND`` alone for index 0,
``gpu`` for the best real GPU, or ``auto``.
"""

from __future__ import annotations

import atexit
import dataclasses
import functools
import threading
from collections.abc import Callable
from typing import NamedTuple

from dl4all.config import device_setting
from dl4all.errors import BackendMissingError, ConfigError, DeviceError, UnknownDeviceError
from dl4all.runtime import measurements, selection
from dl4all.runtime.backend import Backend
from dl4all.runtime.cpu.backend import CpuBackend, describe
from dl4all.runtime.info import DeviceInfo
from dl4all.runtime.kompute.backend import KomputeBackend
from dl4all.runtime.kompute.library import installed as kompute_installed
from dl4all.runtime.kompute.library import kp
from dl4all.runtime.null.backend import open_null
from dl4all.runtime.selection import Choice
from dl4all.runtime.vulkan.backend import VulkanBackend
from dl4all.runtime.vulkan.discovery import physical_devices
from dl4all.runtime.vulkan.instance import NO_DRIVER

# Each opens device `index`. Where nothing was measured, the first that a GPU offers is the one to take.
BACKENDS: dict[str, Callable[[int], Backend]] = {
    "vulkan": VulkanBackend,
    "kompute": KomputeBackend,
    "cpu": CpuBackend,
    "null": open_null,  # for tests: never listed, and opened only by its name
}


class Found(NamedTuple):
    """The machine's devices, and what kept Vulkan from adding to them ('' if nothing did)."""

    devices: tuple[DeviceInfo, ...]
    vulkan_problem: str


@functools.cache
def find() -> Found:
    """Look for devices once. Never fails: without Vulkan there is still the CPU."""
    gpus: list[DeviceInfo] = []
    problem = ""
    backends = ("vulkan", "kompute") if kompute_installed() else ("vulkan",)
    try:
        gpus = [dataclasses.replace(device.info, backends=backends) for device in physical_devices()]
        if not gpus:
            raise BackendMissingError(f"[vulkan] {NO_DRIVER}")
    except DeviceError as error:  # a broken driver must not take the CPU away too
        problem = str(error)
    return Found((*gpus, describe()), problem)


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
    if backend not in BACKENDS or (colon and not (digits.isascii() and digits.isdigit())):
        raise UnknownDeviceError(f"unknown device {name!r}; use auto, gpu, or one of: {_known()}")
    index = int(digits or 0)
    canonical = "cpu" if backend == "cpu" and index == 0 else f"{backend}:{index}"
    if canonical == "null:0" or any(canonical in device.names for device in devices()):
        return canonical
    if backend == "kompute" and not kompute_installed():
        kp()  # says what is missing
    if backend != "cpu" and (problem := find().vulkan_problem):
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
            opened = BACKENDS[backend](int(digits or 0))
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
