"""Knowledge about devices, kept in the user's cache folder: a file for each record.

A record belongs to a backend, a device (by its UUID) and a driver version, and to whatever else it names;
after a change of any of them it does not count any more. Nor does one that cannot be read: everything in
here can be found out again. Processes that keep different records write different files and lose nothing
of each other's; of two that keep the same one the last counts.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from dl4all.config import least_limits
from dl4all.runtime.device_info import DeviceInfo
from dl4all.runtime.records import file_cache, file_lock

logger = logging.getLogger("dl4all")


def identity(name: str, info: DeviceInfo) -> list[str]:
    """The identity of device `name` (``vulkan:0``) as it is now, unlike all others'."""
    backend = name.partition(":")[0]
    limits = "least limits" if least_limits() else ""
    return [backend, info.uuid, info.hardware, info.driver, info.driver_version, limits]


def digest(words: Sequence[Any]) -> str:
    """A name for a file that is about `words`."""
    return hashlib.sha256(json.dumps(words).encode()).hexdigest()[:32]


def file(folder: str, words: Sequence[Any]) -> Path:
    """The file of the record of `words` in a folder of the cache."""
    return file_cache.folder() / folder / f"{digest(words)}.json"


def read(file: Path, words: Sequence[Any]) -> dict[str, Any] | None:
    """The record of `words`; None where there is none.

    Raises:
        ValueError: there is one, and it cannot be read or is about something else.
    """
    content = file_cache.read(file)
    if content is None:
        if file.exists():
            raise ValueError("it is damaged")
        return None
    try:
        found = json.loads(content)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(found, dict) or found.get("of") != list(words):
        raise ValueError("it is of another device")
    return found


def write(file: Path, words: Sequence[Any], content: dict[str, Any]) -> None:
    """Keep a record; an unwritable cache folder is not an error."""
    file_cache.try_write(file, json.dumps({"of": list(words), **content}, indent=1).encode())


@contextlib.contextmanager
def alone(seconds: float) -> Iterator[bool]:
    """Keep other processes from measuring meanwhile: figures of two that share a device are no good.

    Gives False, after at most `seconds`, if another process is still measuring, or where nothing could
    be kept because the cache folder cannot be written.
    """
    lock = file_cache.folder() / "calibration" / "lock"
    try:
        lock.parent.mkdir(parents=True, exist_ok=True)
        stream = os.fdopen(file_cache.open_at_once(str(lock), os.O_WRONLY | os.O_CREAT), "wb")
    except OSError as error:
        logger.debug("what is measured could not be kept: %s", error)
        yield False
        return
    with stream:
        try:
            yield _locked(stream, time.monotonic() + seconds)
        finally:
            file_lock.unlock(stream)


def _locked(stream: Any, until: float) -> bool:
    while True:
        try:
            if file_lock.try_lock(stream):
                return True
        except OSError:  # a file system without locks
            return True
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
