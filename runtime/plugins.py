"""Every backend by its name: those that belong to dl4all, and those that other packages bring.

A package brings one through an entry point::

    [project.entry-points."dl4all.backends"]
    mine = "my_package.backend"

What the entry point names, a module or any other object, has the two functions of :class:`DeviceSource`.
dl4all's own backends are entry points too, which need not be installed to be found.
"""

from __future__ import annotations

import functools
import logging
import re
from collections import defaultdict
from collections.abc import Iterable
from importlib.metadata import EntryPoint, entry_points
from typing import NamedTuple, Protocol

from dl4all.runtime.device_info import DeviceInfo
from dl4all.runtime.protocols import Backend

GROUP = "dl4all.backends"
# The first that a GPU offers is the one to take where nothing was measured.
BUILT_IN = tuple(
    EntryPoint(name, f"dl4all.runtime.{name}.backend", GROUP) for name in ("vulkan", "kompute", "cpu", "null")
)
NOT_A_BACKEND = ("auto", "gpu")  # names of devices that mean something else
logger = logging.getLogger("dl4all")


class DeviceSource(Protocol):
    """The origin of the devices of one backend."""

    def find(self) -> Iterable[DeviceInfo]:
        """The devices that are here; the same device under the same index in every process.

        Where two backends describe a device alike, ``backends`` apart, it is one device that has two
        names. ``backends`` is filled in by the registry.

        Raises:
            DeviceError: what the backend needs is missing; the message says how to get it.
        """

    def open(self, index: int) -> Backend:
        """Open the device that has this ``index``.

        A source may also have ``open_again(index, opening)``, where openings that share less need more.
        """


class Plugins(NamedTuple):
    """The backends that can be used, and for each of the others why it cannot."""

    sources: dict[str, DeviceSource]
    refused: dict[str, str]


@functools.cache
def load() -> Plugins:
    """Import every backend, once. One that cannot be used is logged, and the others stay."""
    declared: defaultdict[str, list[EntryPoint]] = defaultdict(list)
    # Sorted: the order on the path is that of a folder's listing.
    for entry in (*BUILT_IN, *sorted(entry_points(group=GROUP), key=lambda entry: (entry.name, entry.value))):
        declared[entry.name].append(entry)
    found = Plugins({}, {})
    for name, entries in declared.items():
        built_in = entries[0] in BUILT_IN
        try:
            if len(entries) > 1 and not built_in:
                raise ValueError(f"{_names(entries)} have this name; uninstall all but one")
            found.sources[name] = _import(entries[0])
        except Exception as error:  # noqa: BLE001  # anything may happen when a stranger's module is imported
            found.refused[name] = f"[{name}] the backend is left out: {reason(error)}"
            logger.error("%s", found.refused[name])
        if len(entries) > 1 and built_in:
            logger.error("[%s] is dl4all's own name; left out: %s", name, _names(entries[1:]))
    return found


def reason(error: Exception) -> str:
    """The reason of a failure, on one line."""
    return f"{type(error).__name__}: {error}"


def _import(entry: EntryPoint) -> DeviceSource:
    if entry.name in NOT_A_BACKEND or not re.fullmatch(r"[a-z][a-z0-9_]*", entry.name):
        raise ValueError(f"{_names([entry])} needs another name: small letters, digits and underscores")
    source: DeviceSource = entry.load()
    for function in ("find", "open"):
        if not callable(getattr(source, function, None)):
            raise TypeError(f"{_names([entry])} has no function {function}()")
    return source


def _names(entries: list[EntryPoint]) -> str:
    return " and ".join(
        f"{entry.value} of {entry.dist.name}" if entry.dist is not None else entry.value for entry in entries
    )
