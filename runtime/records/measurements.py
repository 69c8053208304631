"""The measured speed of each device: a record for each device and backend.

After an update of the driver, or of what is measured, a device counts as not measured; measuring again takes
two seconds.

A driver can take the whole process with it. So a record is begun before a device is measured: one that was
begun twice and never finished is evidence against the device.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from dl4all.runtime.device_info import DeviceInfo
from dl4all.runtime.records import device_records
from dl4all.runtime.records.device_records import alone as alone

# Raised when the meaning of a number changes or the shaders become much faster: old records no longer count.
FORMAT = 2
FOLDER = "calibration"
ATTEMPTS = 2  # one process may have been killed for other reasons
changes = 0  # how many records this process has written
logger = logging.getLogger("dl4all")


@dataclass(frozen=True)
class Measurement:
    """The findings of :func:`dl4all.calibration.calibrate`.

    ``problem`` is empty if a chain of dependent operations gave the CPU's numbers; otherwise it is
    the evidence, and the other numbers are 0.
    """

    matmul_gflops: float = 0.0
    copy_gb_per_s: float = 0.0  # on the device, bytes read and written
    upload_gb_per_s: float = 0.0
    download_gb_per_s: float = 0.0
    launch_us: float = 0.0  # one small operation, until its result is there
    problem: str = ""


class _Record(NamedTuple):
    unfinished: int  # how often measuring was begun since it was last finished
    measurement: Measurement | None


def lookup(name: str, info: DeviceInfo) -> Measurement | None:
    """The record of device `name` (``vulkan:0``), None if it was not measured as it is now."""
    record = _read(name, info)
    if record.unfinished >= ATTEMPTS:
        return Measurement(
            problem=f"the process ended {record.unfinished} times while this was measured; "
            f"dl.calibrate({name!r}) tries again"
        )
    return record.measurement


def store(name: str, info: DeviceInfo, measurement: Measurement) -> None:
    """Keep a record; an unwritable cache folder is not an error."""
    _write(name, info, _Record(0, measurement))


@contextlib.contextmanager
def attempt(name: str, info: DeviceInfo) -> Iterator[None]:
    """Surrounds measuring a device, so that the next process learns of it if this one does not survive.

    Whoever leaves by an exception leaves things as they were.
    """
    before = _read(name, info)
    _write(name, info, before._replace(unfinished=before.unfinished + 1))
    try:
        yield
    except BaseException:
        _write(name, info, before)
        raise


def _key(name: str, info: DeviceInfo) -> list[str]:
    return [str(FORMAT), *device_records.identity(name, info)]


def _read(name: str, info: DeviceInfo) -> _Record:
    key = _key(name, info)
    try:
        found = device_records.read(device_records.file(FOLDER, key), key)
        if found is None:
            return _Record(0, None)
        measurement = found["measurement"]
        return _Record(int(found["unfinished"]), None if measurement is None else _checked(measurement))
    except (ValueError, TypeError, LookupError, OverflowError) as error:
        logger.debug("a calibration record is unreadable and made anew: %s", error)
        return _Record(0, None)


def _checked(values: dict[str, Any]) -> Measurement:
    measurement = Measurement(**values)
    *numbers, problem = dataclasses.astuple(measurement)
    if not isinstance(problem, str) or not all(math.isfinite(number) and number >= 0 for number in numbers):
        raise ValueError(f"{values} cannot have been measured")
    return measurement


def _write(name: str, info: DeviceInfo, record: _Record) -> None:
    global changes
    changes += 1
    key = _key(name, info)
    measurement = None if record.measurement is None else dataclasses.asdict(record.measurement)
    content = {"unfinished": record.unfinished, "measurement": measurement}
    device_records.write(device_records.file(FOLDER, key), key, content)
