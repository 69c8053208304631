"""The work of devices so far, and its rates; reading them holds up none of their work."""

from __future__ import annotations

import time
import weakref
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from dl4all.scheduler.device.current import opened
from dl4all.scheduler.device.device import Device
from dl4all.scheduler.monitor.counters import groups, streams

T = TypeVar("T")


@dataclass(frozen=True)
class Statistics:
    """The numbers of a device at one moment, since it was opened. Memory and copies are in bytes."""

    device: str
    elapsed: float  # seconds on the device's clock: a real one, or the virtual one
    busy: float | None  # seconds in which it computed; None where that can only be sampled
    kernels: int
    host_kernels: int  # of these, or in place of these, NumPy bodies
    uploaded: int
    downloaded: int
    allocated: int  # by tensors
    reserved: int  # from the driver, or from the host
    memory: int  # that the device has
    queued: int  # tasks that wait or run in streams
    virtual: bool
    retired: str  # why a group goes on without it; empty if none does


def used() -> list[Device]:
    """The devices that this process has opened or made."""
    found = [*opened(), *(stream.device for stream in _all(streams))]
    found += [device for group in _all(groups) for device in group.devices]
    return list(dict.fromkeys(found))


def _all(alive: weakref.WeakSet[T]) -> list[T]:
    """The contents of a set that other threads add to."""
    while True:
        try:
            return list(alive)
        except RuntimeError:  # it changed meanwhile
            continue


def snapshot(device: Device) -> Statistics:
    """The numbers of a device at this moment.

    A device is busy in the seconds in which tasks of its streams run, those of several streams added up.

    Example:
        >>> import dl4all as dl
        >>> device = dl.device("cpu")
        >>> before = snapshot(device)
        >>> y = dl.ones(3, device=device).relu()
        >>> snapshot(device).kernels - before.kernels >= 1
        True
    """
    counters, simulated = device.counters, device.simulated
    own = [stream for stream in _all(streams) if stream.device is device]
    kernels, elapsed = counters.launches, time.perf_counter()
    uploaded, downloaded = counters.uploaded, counters.downloaded
    busy: float | None = None
    if simulated is not None:
        kernels, elapsed, busy = int(simulated.work.launches), simulated.computed_until, simulated.busy
        uploaded, downloaded = simulated.moved["upload"], simulated.moved["download"]
    else:
        kernels += counters.host_kernels if device.is_host else 0
        if own:
            busy = sum(stream.busy_until_now() for stream in own)
    reasons = [group.retired[device] for group in _all(groups) if device in group.retired]
    memory = device.pool.stats
    return Statistics(
        device=device.name,
        elapsed=elapsed,
        busy=busy,
        kernels=kernels,
        host_kernels=counters.host_kernels,
        uploaded=uploaded,
        downloaded=downloaded,
        allocated=memory.allocated,
        reserved=memory.reserved,
        memory=device.info.memory,
        queued=sum(len(stream) for stream in own),
        virtual=simulated is not None,
        retired=reasons[0] if reasons else "",
    )


class Meter:
    """Rates of devices between two calls of :meth:`rates`, and samples of those that can only be sampled."""

    def __init__(self) -> None:
        self._before: weakref.WeakKeyDictionary[Device, Statistics] = weakref.WeakKeyDictionary()
        self._samples: weakref.WeakKeyDictionary[Device, list[bool]] = weakref.WeakKeyDictionary()

    def sample(self, devices: Iterable[Device]) -> bool:
        """See which devices work at this moment; returns whether one of them can only be sampled."""
        any_sampled = False
        for device in devices:
            before = self._before.get(device)
            if before is None or before.busy is None:
                works = device.in_flight()
                if works is not None:
                    any_sampled = True
                    self._samples.setdefault(device, []).append(works)
        return any_sampled

    def rates(self, device: Device) -> dict[str, Any]:
        """The work of a device each second since the last call: ``busy`` is a share, None if nobody knows."""
        now = snapshot(device)
        before = self._before.get(device, now)
        self._before[device] = now
        samples = self._samples.pop(device, [])
        seconds = now.elapsed - before.elapsed
        busy = sum(samples) / len(samples) if samples else None
        if now.busy is not None:
            busy = _share(now.busy - (before.busy or 0.0), seconds)
        return {
            "name": now.device,
            "busy": busy,
            "kernels_per_second": _rate(now.kernels - before.kernels, seconds),
            "uploaded_per_second": _rate(now.uploaded - before.uploaded, seconds),
            "downloaded_per_second": _rate(now.downloaded - before.downloaded, seconds),
            "allocated": now.allocated,
            "reserved": now.reserved,
            "memory": now.memory,
            "queued": now.queued,
            "virtual": now.virtual,
            "retired": now.retired,
        }


def _rate(amount: float, seconds: float) -> float:
    return max(0.0, amount / seconds) if seconds > 0 else 0.0


def _share(part: float, seconds: float) -> float:
    """Streams that ended took their seconds with them, and several may have run at once."""
    return min(1.0, _rate(part, seconds))
