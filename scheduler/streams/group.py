"""Several devices that work together, and which of them still do."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Literal

from dl4all.errors import ArgumentError, DeviceError
from dl4all.runtime import fork, registry
from dl4all.scheduler.device.current import device as open_device
from dl4all.scheduler.device.device import Device
from dl4all.scheduler.monitor import publisher
from dl4all.scheduler.monitor.counters import groups
from dl4all.scheduler.streams.stream import Stream

TIMEOUT = 300.0  # seconds that a device may work on one piece of a batch

logger = logging.getLogger("dl4all")


class DeviceGroup:
    """Devices that share work: of different kinds and speeds, or one device opened several times.

    A device that is lost, or does not answer in time, is retired: the group goes on without it. A group and
    what works with it are of one process: a forked child makes its own.

    Args:
        devices: names or devices, each once (``"vulkan:0#1"`` opens ``vulkan:0`` once more), or ``"all"`` for
            every device of this machine. The first is the primary one: parameters and results live there.
        timeout: seconds after which a device that works on one piece of a batch is given up.

    Raises:
        ArgumentError: there is no device, or one is named twice.
        UnknownDeviceError, BackendMissingError

    Example:
        >>> import dl4all as dl
        >>> group = dl.DeviceGroup(["cpu", "cpu#1"])
        >>> len(group), group.primary
        (2, device('cpu'))
    """

    def __init__(self, devices: Sequence[str | Device] | Literal["all"], *, timeout: float = TIMEOUT) -> None:
        if isinstance(devices, str):
            if devices != "all":
                raise ArgumentError(
                    f"[DeviceGroup] expected a list of devices or 'all', got {devices!r}; use [{devices!r}]"
                )
            devices = _all()
        if timeout <= 0:
            raise ArgumentError(f"[DeviceGroup] timeout must be more than 0 seconds, got {timeout}")
        self.devices = tuple(open_device(device) for device in devices)
        if not self.devices:
            raise ArgumentError("[DeviceGroup] expected at least one device, got none")
        twice = {str(device) for device in self.devices if self.devices.count(device) > 1}
        if twice:
            name = min(twice)
            raise ArgumentError(
                f"[DeviceGroup] {name} is named twice; name it {name}#1 to open it once more, with memory of "
                "its own"
            )
        self.timeout = timeout
        self.retired: dict[Device, str] = {}
        """Devices that the group goes on without, and why."""
        self._alive = self.devices
        self._streams: dict[Device, Stream] = {}
        self._lock = fork.lock()
        self._made_in = fork.generation  # its streams' threads are of this process
        groups.add(self)
        publisher.start()

    def __repr__(self) -> str:
        return f"DeviceGroup({[str(device) for device in self.devices]})"

    def __len__(self) -> int:
        """The number of devices that still work."""
        return len(self.alive)

    def __iter__(self) -> Iterator[Device]:
        return iter(self.alive)

    def __contains__(self, device: object) -> bool:
        return device in self.alive

    @property
    def alive(self) -> tuple[Device, ...]:
        """The devices that still work, in their order.

        Raises:
            ForkError: the group was made before this process was forked.
        """
        fork.check_own(self._made_in, "DeviceGroup")
        return self._alive

    @property
    def primary(self) -> Device:
        """The first device that still works.

        Raises:
            DeviceError: none does.
        """
        alive = self.alive
        if not alive:
            reasons = "; ".join(f"{device}: {reason}" for device, reason in self.retired.items())
            raise DeviceError(f"[DeviceGroup] no device is left ({reasons})")
        return alive[0]

    def stream(self, device: Device) -> Stream:
        """The group's stream of one of its devices.

        Raises:
            ArgumentError: the device is not one of the group's.
            DeviceError: the group goes on without it.
            ForkError: the group was made before this process was forked.
        """
        self._check(device)
        fork.check_own(self._made_in, "DeviceGroup")
        with self._lock:
            if device in self.retired:
                raise DeviceError(
                    f"[DeviceGroup] {device} is retired ({self.retired[device]}); use another one"
                )
            if device not in self._streams:
                self._streams[device] = Stream(device, name=f"{device} of a group")
            return self._streams[device]

    def retire(self, device: Device, reason: str) -> None:
        """Go on without a device. What its stream still has to do is cancelled.

        Raises:
            ArgumentError: the device is not one of the group's.
        """
        self._check(device)
        with self._lock:
            if device in self.retired:
                return
            self.retired[device] = reason
            self._alive = tuple(device for device in self.devices if device not in self.retired)
            stream = self._streams.pop(device, None)
        if stream is not None:
            stream.close()
        left = ", ".join(map(str, self.alive)) or "no device"
        logger.warning("[DeviceGroup] %s is retired (%s); %s goes on", device, reason, left)

    def _check(self, device: Device) -> None:
        if device not in self.devices:
            raise ArgumentError(f"[DeviceGroup] {device} is not one of {', '.join(map(str, self.devices))}")

    def close(self) -> None:
        """Cancel what the streams still have to do, and end their threads. The devices stay open."""
        with self._lock:
            for stream in self._streams.values():
                stream.close()
            self._streams.clear()

    def __enter__(self) -> DeviceGroup:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()


def _all() -> list[str]:
    """Every device of this machine that can be opened, the one that ``auto`` means first."""
    first = registry.resolve("auto")
    names = [info.names[0] for info in registry.usable()]
    return [first, *(name for name in names if first not in registry.describe(name).names)]
