"""How fast each device measured, kept in the user's cache folder: one file for each record.

A record belongs to a backend, a device (by its UUID), a driver version and a version of what was
measured; after an update of any of them the device counts as not measured. So does a record that cannot
be read: measuring again takes two seconds. Processes that measure different devices write different files
and lose nothing of each other's.

A driver can take the whole process with it. So a record is begun before a device is measured: one that was
begun twice and never finished is evidence against the device.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import logging
import math
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from dl4all.config import least_limits
from dl4all.runtime import cache
from dl4all.runtime.info import DeviceInfo

if sys.platform != "win32":
    import fcntl

# Raised when the meaning of a number changes or the shaders become much faster: old records no longer count.
FORMAT = 2
ATTEMPTS = 2  # one process may have been killed for other reasons
changes = 0  # how many records this process has written
logger = logging.getLogger("dl4all")


@dataclass(frozen=True)
class Measurement:
    """What :func:`dl4all.calibration.calibrate` found.

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


@contextlib.contextmanager
def alone(seconds: float) -> Iterator[bool]:
    """Keep other processes from measuring meanwhile: figures of two that share a device are no good.

    Gives False, after at most `seconds`, if another process is still measuring, or where nothing could
    be kept because the cache folder cannot be written.
    """
    file = cache.folder() / "calibration" / "lock"
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        stream = file.open("ab")
    except OSError as error:
        logger.debug("calibration could not be kept: %s", error)
        yield False
        return
    with stream:
        yield _locked(stream, time.monotonic() + seconds)


def _locked(stream: Any, until: float) -> bool:
    if sys.platform == "win32":
        return True
    while True:
        try:
            # Goes with the process, however that ends.
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                return False
            time.sleep(0.02)
        except OSError:  # a file system without locks
            return True
        else:
            return True


def _key(name: str, info: DeviceInfo) -> list[str]:
    backend = name.partition(":")[0]
    limits = "least limits" if least_limits() else ""
    return [str(FORMAT), backend, info.uuid, info.hardware, info.driver, info.driver_version, limits]


def _file(key: list[str]) -> Path:
    digest = hashlib.sha256(json.dumps(key).encode()).hexdigest()
    return cache.folder() / "calibration" / f"{digest[:32]}.json"


def _read(name: str, info: DeviceInfo) -> _Record:
    key = _key(name, info)
    content = cache.read(_file(key))
    if content is None:
        return _Record(0, None)
    try:
        found = json.loads(content)
        if found["of"] != key:
            raise ValueError("it is of another device")
        measurement = found["measurement"]
        return _Record(int(found["unfinished"]), None if measurement is None else _checked(measurement))
    except (ValueError, TypeError, LookupError) as error:
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
    content = {"of": key, "unfinished": record.unfinished, "measurement": measurement}
    cache.try_write(_file(key), json.dumps(content, indent=1).encode())
