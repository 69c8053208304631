"""Which device is meant: by its name, by default, and in a ``with`` block."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator

from dl4all import config
from dl4all.errors import BackendMissingError, UnknownDeviceError
from dl4all.runtime import fork, registry
from dl4all.scheduler.device import host_kernels, shutdown
from dl4all.scheduler.device import name as names
from dl4all.scheduler.device.device import Device
from dl4all.scheduler.monitor.counters import devices, groups, streams

logger = logging.getLogger("dl4all")

_devices: dict[str, Device] = {}
_devices_lock = fork.lock()
_default: Device | None = None  # of all threads

when_opened: Callable[[], None] | None = None
"""Called when a device was opened; :mod:`dl4all.scheduler.monitor.publisher` puts itself here."""


def set_default_device(name: str | Device | None) -> None:
    """Have ``device="auto"`` mean this device in all threads; None has the best one chosen again.

    A ``with`` block of another device goes before it, and it goes before DL4ALL_DEVICE.

    Raises:
        UnknownDeviceError, BackendMissingError

    Example:
        >>> import dl4all as dl
        >>> dl.set_default_device("cpu")
        >>> dl.zeros(2).device
        device('cpu')
        >>> dl.set_default_device(None)
    """
    global _default
    _default = None if name is None else device(name)


@contextlib.contextmanager
def default_device(name: str | Device) -> Iterator[Device]:
    """The block in which ``device="auto"`` means a device in all threads, whichever this one has entered."""
    global _default
    before, _default = _default, device(name)
    try:
        with _default as entered:
            yield entered
    finally:
        _default = before


def get_default_device() -> Device:
    """The device that ``device="auto"`` means in this thread.

    Example:
        >>> import dl4all as dl
        >>> with dl.device("cpu"):
        ...     dl.get_default_device()
        device('cpu')
    """
    return device("auto")


def chosen() -> Device | None:
    """The device that this thread or all threads have chosen for ``"auto"``; None where the best is taken."""
    return names.entered.stack[-1] if names.entered.stack else _default


def device(name: str | int | Device = "auto") -> Device:
    """The device of a name, as :class:`Device` says, or the accelerator of a number; opened at first."""
    if isinstance(name, Device):
        return name
    if isinstance(name, int):
        name = f"cuda:{name}"
    elif not isinstance(name, str):
        raise UnknownDeviceError(
            f'[device] expected a name such as "vulkan:0", got {name!r}; `dl4all devices` lists them'
        )
    if name == "auto":
        preferred = chosen()
        if preferred is not None:
            return preferred
    found = _devices.get(name)
    if found is not None and found.is_host:  # which no process loses when it forks
        return found
    if name == "gpu" or name.startswith("cuda"):
        name = _accelerator_named(name)
    canonical = registry.resolve(name)
    with _devices_lock:
        if canonical not in _devices:
            _devices[canonical] = Device.of_backend(canonical, registry.open_device(canonical))
            names.cpu_use.is_mixed = len(_devices) > 1 or canonical != "cpu"
            if when_opened is not None:
                when_opened()
        return _devices[canonical]


def accelerators() -> list[str]:
    """The devices that scripts call ``cuda:0``, ``cuda:1``, ...: none where new tensors go to the CPU.

    Their order is the same whichever of them new tensors go to at present.
    """
    preferred = chosen()
    if preferred is None:
        return registry.accelerators()
    if preferred.is_cpu:
        return []
    names = registry.accelerators()
    return names if preferred.name in names else [*names, preferred.name]


def accelerator() -> str | None:
    """The one of :func:`accelerators` that new tensors go to."""
    names = accelerators()
    preferred = chosen()
    return None if not names else names[0] if preferred is None else preferred.name


def cuda_devices() -> list[str]:
    """The devices of :func:`accelerators`, unless DL4ALL_CUDA says that nothing is called cuda.

    Raises:
        ConfigError: the setting is unusable.
    """
    return accelerators() if config.cuda_setting() else []


def _accelerator_named(name: str) -> str:
    """The device that a name of the accelerator means; other names, and all where there is none, as they are.

    Raises:
        UnknownDeviceError: there are accelerators, but none of that number.
    """
    word, colon, digits = name.partition(":")
    if word not in ("gpu", "cuda") or (colon and not (digits.isascii() and digits.isdigit())):
        return name
    names = accelerators() if word == "gpu" else cuda_devices()
    if not names:
        return name
    if int(digits or 0) >= len(names):
        listed = ", ".join(f"cuda:{number} ({one})" for number, one in enumerate(names))
        raise UnknownDeviceError(f"no device {name} here; there are {listed}")
    meant = names[int(digits)] if digits else accelerator() or name
    if word == "cuda":
        _say_once(meant)
    return meant


def cuda_device(name: str, wanted: str | int | Device | None = None) -> Device:
    """The accelerator, or the device of a name, or the accelerator of a number.

    Args:
        name: of what needs it.
        wanted: the name or number.

    Raises:
        BackendMissingError: there is no accelerator.
        UnknownDeviceError: there is none of that name or number.
    """
    if not cuda_devices():
        raise BackendMissingError(
            f"[{name}] new tensors go to the CPU, and no device is called cuda; `dl4all devices` lists what "
            'is here, DL4ALL_DEVICE or dl.set_default_device chooses, and .to("auto") goes there'
        )
    return device("cuda" if wanted is None else f"cuda:{wanted}" if isinstance(wanted, int) else wanted)


_said = False


def _say_once(meant: str) -> None:
    """Log which device scripts that ask for CUDA get."""
    global _said
    if not _said:
        _said = True
        hardware = device(meant).info.hardware
        logger.warning('"cuda" means %s here, %s; DL4ALL_CUDA=0 turns that off', meant, hardware)


def is_named_cuda(target: Device) -> bool:
    """Whether scripts that ask for CUDA may be told that a device is one: it is of an accelerator's type."""
    kind = target.name.partition(":")[0]
    return not target.is_cpu and any(name.partition(":")[0] == kind for name in cuda_devices())


def opened() -> list[Device]:
    """The devices that :func:`device` has opened."""
    return list(_devices.values())


def synchronize(target: str | Device | None = None) -> None:
    """Wait until everything that was asked of a device, or of all opened ones, is done.

    Example:
        >>> import dl4all as dl
        >>> x = dl.ones(3) * 2  # may still be computed
        >>> dl.synchronize()
    """
    for opened in list(_devices.values()) if target is None else [device(target)]:
        opened.synchronize()


def _forked() -> None:
    """Devices of the parent that have a driver refuse in a child, also by their names."""
    host_kernels.forget()
    for one in list(devices):
        one.leave_to_parent()
    for name in [name for name, one in _devices.items() if not one.is_host]:
        del _devices[name]
    for stream in [stream for stream in streams if not stream.device.is_host]:
        streams.discard(stream)
    groups.clear()  # they work with threads


names.opener.open = device
names.opener.is_named_cuda = is_named_cuda
registry.locks_of = shutdown.locks_of
fork.around(host_kernels.hold, host_kernels.release)
fork.in_child(_forked)
