"""Which device is meant: by its name, by default, and in a ``with`` block."""

from __future__ import annotations

from collections.abc import Callable

from dl4all.runtime import fork, registry
from dl4all.scheduler.device import host_kernels, shutdown
from dl4all.scheduler.device import name as names
from dl4all.scheduler.device.device import Device
from dl4all.scheduler.monitor.counters import devices, groups, streams

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


def device(name: str | Device = "auto") -> Device:
    """The device of that name, opened at the first call, as :class:`Device` says."""
    if isinstance(name, Device):
        return name
    if name == "auto":
        preferred = chosen()
        if preferred is not None:
            return preferred
    found = _devices.get(name)
    if found is not None and found.is_host:  # which no process loses when it forks
        return found
    canonical = registry.resolve(name)
    with _devices_lock:
        if canonical not in _devices:
            _devices[canonical] = Device.of_backend(canonical, registry.open_device(canonical))
            if when_opened is not None:
                when_opened()
        return _devices[canonical]


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
registry.locks_of = shutdown.locks_of
fork.around(host_kernels.hold, host_kernels.release)
fork.in_child(_forked)
