"""Settings from the environment and from ``dl4all.toml``.

The file is looked for in the working directory, then in the user's configuration folder; the
first one found counts. An environment variable wins over the file::

    # dl4all.toml
    device = "vulkan:0"     # what device="auto" means; environment: DL4ALL_DEVICE
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NamedTuple

import platformdirs

from dl4all.errors import ConfigError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

KNOWN = ("device",)


class Setting(NamedTuple):
    """A value and where it was found."""

    value: str
    source: str


def device_setting() -> Setting | None:
    """The device that the user wants ``auto`` to mean, if they said so.

    Raises:
        ConfigError: the file cannot be read or holds something unknown.
    """
    if name := os.environ.get("DL4ALL_DEVICE"):
        return Setting(name, "DL4ALL_DEVICE")
    for folder in (Path.cwd(), platformdirs.user_config_path("dl4all")):
        path = folder / "dl4all.toml"
        if path.is_file():
            return _read_device(path)
    return None


def least_limits() -> bool:
    """Whether ``DL4ALL_LIMITS=minimum`` asks Vulkan devices to have no more than every device has.

    Raises:
        ConfigError: the variable holds something else.
    """
    value = os.environ.get("DL4ALL_LIMITS", "")
    if value not in ("", "minimum"):
        raise ConfigError(f"DL4ALL_LIMITS must be minimum or empty, not {value!r}")
    return value == "minimum"


def _read_device(path: Path) -> Setting | None:
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from None
    if unknown := sorted(set(values) - set(KNOWN)):
        raise ConfigError(f"{path}: unknown setting {unknown[0]!r}; known are {', '.join(KNOWN)}")
    name = values.get("device")
    if name is not None and not isinstance(name, str):
        raise ConfigError(f'{path}: device must be text such as "vulkan:0", not {name!r}')
    return Setting(name, str(path)) if name else None
