"""What ``dl4all doctor`` looks at."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from dl4all.calibration import compare_with_cpu
from dl4all.errors import DeviceError, Dl4allError
from dl4all.runtime import registry, spirv
from dl4all.runtime.kompute.library import kp
from dl4all.runtime.spirv import cache, compiler
from dl4all.runtime.vulkan.instance import VALIDATION_LAYER, layers, loader_version, version
from dl4all.scheduler.device import device


class Finding(NamedTuple):
    """What was looked at, whether it is well, what was seen, and what to do if it is not.

    ``ok`` is None for what is merely good to have.
    """

    what: str
    ok: bool | None
    seen: str
    remedy: str = ""


def examine() -> Iterator[Finding]:
    """Every check, in the order in which one thing needs another."""
    yield _attempt("Vulkan loader", _loader)
    yield _drivers()
    yield _render_nodes()
    yield _validation()
    yield _attempt("GLSL compiler", lambda: compiler.pick().identity, needed=not _bundled())
    yield _cache()
    yield _attempt("Kompute", lambda: str(kp().__file__), needed=False)
    for info in registry.devices():
        for name in info.names:
            yield _attempt(f"computing on {name}", lambda name=name: _compute(name))  # type: ignore[misc]


def _attempt(what: str, look: Callable[[], str], *, needed: bool = True) -> Finding:
    """Look, and turn a typed error into a finding: the message says what to do."""
    try:
        return Finding(what, True, look())
    except Dl4allError as error:
        return Finding(what, False if needed else None, "missing or failing", str(error))


def _loader() -> str:
    return "version " + version(loader_version())


def _drivers() -> Finding:
    found = registry.find()
    gpus = [device for device in found.devices if device.type != "cpu"]
    if found.vulkan_problem:
        return Finding("Vulkan drivers", False, "none", found.vulkan_problem)
    seen = "; ".join(f"{d.hardware}: {d.driver} {d.driver_version} ({d.type})" for d in gpus)
    if all(device.type == "software" for device in gpus):
        return Finding(
            "Vulkan drivers", None, seen,
            "only software drivers: if this machine has a GPU, install its driver "
            "(apt install mesa-vulkan-drivers for AMD and Intel, the vendor's for NVIDIA)",
        )  # fmt: skip
    return Finding("Vulkan drivers", True, seen)


def _render_nodes() -> Finding:
    nodes = sorted(Path("/dev/dri").glob("renderD*"))
    if not nodes:
        return Finding(
            "render nodes", None, "none in /dev/dri", "a GPU whose kernel driver is loaded has one"
        )
    closed = [str(node) for node in nodes if not os.access(node, os.R_OK | os.W_OK)]
    if closed:
        return Finding(
            "render nodes", False, f"no permission for {', '.join(closed)}",
            "sudo usermod -aG render,video $USER, then log in again",
        )  # fmt: skip
    return Finding("render nodes", True, ", ".join(map(str, nodes)))


def _validation() -> Finding:
    remedy = "only for developing: apt install vulkan-validationlayers"
    try:
        here = VALIDATION_LAYER in layers()
    except Dl4allError:
        here = False
    return Finding(
        "validation layer",
        True if here else None,
        VALIDATION_LAYER if here else "missing",
        "" if here else remedy,
    )


def _bundled() -> bool:
    """Whether this installation carries compiled shaders, so that no compiler is needed."""
    return (spirv.SHADERS / "spirv").is_dir()


def _cache() -> Finding:
    folder = cache.user_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        return Finding(
            "shader cache", None, f"{folder}: {error.strerror}",
            "shaders are compiled anew in every process; make it writable or set DL4ALL_CACHE_DIR",
        )  # fmt: skip
    return Finding("shader cache", True, str(folder))


def _compute(name: str) -> str:
    """Whether results are the CPU's.

    Raises:
        DeviceError: they are not.
    """
    if problem := compare_with_cpu(device(name)):
        raise DeviceError(
            f"[doctor] {name} computes wrongly: {problem}; update its driver, or use another device"
        )
    return "results equal the CPU's"
