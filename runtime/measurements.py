"""How fast each device measured, kept in the user's cache folder.

A record belongs to a backend, a device (by its UUID), a driver version and a version of what was
measured; after an update of any of them the device counts as not measured. A file that cannot be
read counts as empty: measuring again takes two seconds.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dl4all.runtime.info import DeviceInfo
from dl4all.runtime.spirv.cache import user_folder

FORMAT = 1  # raised when the meaning of a number changes, so that old records no longer count
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


def lookup(name: str, info: DeviceInfo) -> Measurement | None:
    """The record of device `name` (``vulkan:0``), None if it was not measured as it is now."""
    found = _read().get(_key(name, info))
    try:
        return None if found is None else Measurement(**found)
    except TypeError:
        logger.debug("a calibration record is unreadable and ignored: %r", found)
        return None


def store(name: str, info: DeviceInfo, measurement: Measurement) -> None:
    """Keep a record; an unwritable cache folder is not an error."""
    records = _read() | {_key(name, info): dataclasses.asdict(measurement)}
    path = _path()
    partial = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_text(json.dumps(records, indent=1), encoding="utf-8")
        partial.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            partial.unlink()
        logger.debug("calibration is not kept: %s", error)


def _path() -> Path:
    return user_folder().with_name("calibration.json")


def _key(name: str, info: DeviceInfo) -> str:
    backend = name.partition(":")[0]
    return "|".join((str(FORMAT), backend, info.uuid, info.hardware, info.driver, info.driver_version))


def _read() -> dict[str, Any]:
    try:
        records = json.loads(_path().read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        logger.debug("calibration is unreadable and ignored: %s", error)
        return {}
    return records if isinstance(records, dict) else {}
