"""The speeds that were fitted to profiles of a device: a record each.

They say more than a calibration, which runs one product and one copy: how fast each class of kernels is.
"""

from __future__ import annotations

import dataclasses
import logging
import math
from typing import Any

from dl4all.runtime.device_info import DeviceInfo
from dl4all.runtime.records import device_records
from dl4all.runtime.work import Speeds

FORMAT = 1  # raised when the meaning of a number changes
FOLDER = "speeds"
logger = logging.getLogger("dl4all")


def lookup(name: str, info: DeviceInfo) -> Speeds | None:
    """The record of device `name` (``vulkan:0``); None if nothing was fitted for it as it is now."""
    key = _key(name, info)
    try:
        found = device_records.read(device_records.file(FOLDER, key), key)
        return None if found is None else _checked(found["speeds"])
    except (ValueError, TypeError, LookupError, AttributeError, OverflowError) as error:
        logger.debug("a record of speeds is unreadable and does not count: %s", error)
        return None


def store(name: str, info: DeviceInfo, speeds: Speeds) -> None:
    """Keep a record; an unwritable cache folder is not an error."""
    key = _key(name, info)
    device_records.write(device_records.file(FOLDER, key), key, {"speeds": dataclasses.asdict(speeds)})


def _key(name: str, info: DeviceInfo) -> list[str]:
    return [str(FORMAT), *device_records.identity(name, info)]


def _checked(values: dict[str, Any]) -> Speeds:
    numbers = {**values, **values["per_flop_of"]}
    del numbers["per_flop_of"]
    if not all(math.isfinite(number) and number >= 0 for number in numbers.values()):
        raise ValueError(f"{values} cannot have been fitted")
    return Speeds(**values)
