"""The time of work on a device: as expected, for who chooses between devices, and at most.

What is expected follows from the best that is known of a device: what a simulated one declares, what was
fitted to a profile (:mod:`dl4all.scheduler.cost.speed_fit`), what its calibration measured, or what is usual
for its kind.

The bound is for launches, so that none keeps a device busy until its driver gives it up. It is rough and on
the safe side: work and memory traffic at a fraction of the speed that was measured, or that the slowest
devices of a kind have. Too much caution costs a submission more now and then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from dl4all.runtime.device_info import DeviceInfo
from dl4all.runtime.records import measurements, speed_records
from dl4all.runtime.registry import hardware_name
from dl4all.runtime.work import Speeds

if TYPE_CHECKING:
    from dl4all.scheduler.device.device import Device

# GFLOP/s and GB/s of slow devices of each kind: those of phones, ten years old cards, two busy cores.
SLOW = {"discrete": (400.0, 40.0), "integrated": (20.0, 4.0), "virtual": (20.0, 4.0)}
SLOWEST = (4.0, 1.0)
CAUTION = 8.0  # kernels reach an eighth of what the best one of them reaches, or more
LAUNCH = 30e-6  # seconds to record a kernel
COPY = 100e-6  # seconds of a copy between host and device, whatever its size
LINK = 4.0  # GB/s of such a copy


class Rates(NamedTuple):
    """Seconds for each unit of work, at most."""

    per_flop: float
    per_byte: float


def speeds(device: Device) -> Speeds:
    """The expected speeds of a device: declared, fitted to a profile, measured, or usual for its kind.

    >>> import dl4all as dl
    >>> speeds(dl.device("cpu")).per_flop > 0
    True
    """
    if device.simulated is not None:
        return device.simulated.speeds
    name = hardware_name(device.name)
    return speed_records.lookup(name, device.info) or calibrated(name, device.info)


def is_measured(device: Device) -> bool:
    """Whether :func:`speeds` knows a device by more than its kind.

    >>> from dl4all.scheduler.cost.simulation import simulated_device
    >>> is_measured(simulated_device())
    True
    """
    name = hardware_name(device.name)
    found = measurements.lookup(name, device.info)
    return (
        device.simulated is not None
        or speed_records.lookup(name, device.info) is not None
        or (found is not None and not found.problem and found.matmul_gflops > 0)
    )


def calibrated(name: str, info: DeviceInfo) -> Speeds:
    """The speeds of a device by its calibration alone, or what is usual for its kind.

    >>> from dl4all.runtime.null.backend import describe
    >>> round(1e-9 / calibrated("null:0", describe()).per_flop)
    4
    """
    found = measurements.lookup(name, info)
    if found is None or found.problem or found.matmul_gflops <= 0 or found.copy_gb_per_s <= 0:
        gflops, gigabytes = SLOW.get(info.type, SLOWEST)
        return Speeds(LAUNCH, 1e-9 / gigabytes, 1e-9 / gflops, {}, COPY, 1e-9 / LINK, 1e-9 / LINK)
    return Speeds(
        launch=LAUNCH,
        per_byte=1e-9 / found.copy_gb_per_s,
        per_flop=1e-9 / found.matmul_gflops,
        transfer=found.launch_us * 1e-6,
        per_byte_up=1e-9 / (found.upload_gb_per_s or LINK),
        per_byte_down=1e-9 / (found.download_gb_per_s or LINK),
    )


def rates(name: str, info: DeviceInfo) -> Rates:
    """Rates of a device: measured, else estimated.

    >>> from dl4all.runtime.null.backend import describe
    >>> rates("null:0", describe())
    Rates(per_flop=2e-09, per_byte=8e-09)
    """
    found = measurements.lookup(hardware_name(name), info)
    if found is not None and not found.problem and found.matmul_gflops > 0 and found.copy_gb_per_s > 0:
        gflops, gigabytes = found.matmul_gflops, found.copy_gb_per_s
    else:
        gflops, gigabytes = SLOW.get(info.type, SLOWEST)
    return Rates(CAUTION / (gflops * 1e9), CAUTION / (gigabytes * 1e9))
