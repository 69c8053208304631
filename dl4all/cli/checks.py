"""The checks of ``dl4all doctor``: drivers, permissions, caches, libraries and a computation per device."""

from __future__ import annotations

import ctypes
import functools
import json
import os
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from dl4all.calibration import compare_with_cpu
from dl4all.config import calibrates_by_itself, least_limits, tune_setting
from dl4all.errors import ConfigError, DeviceError, Dl4allError
from dl4all.runtime import registry, spirv
from dl4all.runtime.cpu import blas
from dl4all.runtime.cpu.llvm import provider, target, thread_pool
from dl4all.runtime.kompute.library import kp
from dl4all.runtime.records import file_cache, measurements
from dl4all.runtime.spirv import compilers
from dl4all.runtime.vulkan.instance import (
    VALIDATION_LAYER,
    layers,
    loader_version,
    validation_wanted,
    version,
)
from dl4all.scheduler.device.current import device

REPORT = "a defect of dl4all or of the backend's package: report it together with this output"
INSTALL_DRIVER = (
    "if this machine has a GPU, install its driver "
    "(apt install mesa-vulkan-drivers for AMD and Intel, the vendor's for NVIDIA)"
)
COMPILES = (
    "its driver describes hardware that is not here; nothing takes it (unset RADV_FORCE_FAMILY to hide it)"
)
MEASURE = "dl4all devices --calibrate"
MANIFEST_FOLDERS = (  # in which the Vulkan loader looks for drivers' manifests
    "/etc/vulkan/icd.d",
    "/usr/local/etc/vulkan/icd.d",
    "/usr/local/share/vulkan/icd.d",
    "/usr/share/vulkan/icd.d",
    "~/.config/vulkan/icd.d",
    "~/.local/share/vulkan/icd.d",
)


class Finding(NamedTuple):
    """The result of a check; ``ok`` is None if something optional is missing."""

    what: str  # the subject of the check
    ok: bool | None
    seen: str
    remedy: str = ""  # what to do if it is not ok


def examine() -> Iterator[Finding]:
    """Run every check, in the order of their dependencies; a failure does not stop the others."""
    yield _safely("settings", _settings)
    yield _safely("Vulkan loader", _loader)
    yield _safely("driver files", _driver_files)
    yield _safely("Vulkan drivers", _drivers)
    yield _safely("render nodes", _render_nodes)
    yield _safely("validation layer", _validation)
    yield _safely("GLSL compiler", _compiler)
    yield _safely("cache", _cache)
    yield _safely("Kompute", _kompute)
    yield _safely("BLAS", _blas)
    yield _safely("CPU kernels", _cpu_kernels)
    for name in _names():
        yield _safely(f"computing on {name}", functools.partial(_compute, name))
    yield _safely("calibration", _calibration)


def _safely(what: str, check: Callable[[], Finding]) -> Finding:
    """The finding of a check; an error in the check becomes a finding with the error's message."""
    try:
        return check()
    except Dl4allError as error:
        return Finding(what, False, "missing or failing", str(error))
    except Exception as error:  # noqa: BLE001  # the other checks must still run
        return Finding(what, False, f"{type(error).__name__}: {error}", REPORT)


def _names() -> list[str]:
    """All names of all devices, including those of second drivers."""
    try:
        return [name for info in registry.devices() for view in info.drivers for name in view.names]
    except ConfigError:  # reported by the check of the settings
        return []


def _settings() -> Finding:
    """Raises ConfigError: a variable or dl4all.toml has an unusable value."""
    least_limits()
    calibrates_by_itself()
    tune_setting()
    choice = registry.auto()
    return Finding("settings", True, f'device="auto" is {choice.name}: {choice.reason}')


# Drivers


def _loader() -> Finding:
    return Finding("Vulkan loader", True, "version " + version(loader_version()))


def _driver_files() -> Finding:
    """Whether the libraries that drivers' manifests name can be loaded, without which drivers are missing."""
    what = "driver files"
    manifests = _manifests()
    if not manifests:
        return Finding(what, None, "none where Vulkan looks", INSTALL_DRIVER)
    broken = {str(file): error for file in manifests if (error := _load_error(file))}
    if not broken:
        return Finding(what, True, ", ".join(file.name for file in manifests))
    needed = not any(info.is_gpu for info in registry.usable())
    return Finding(
        what,
        False if needed else None,
        "; ".join(f"{file}: {error}" for file, error in broken.items()),
        "install the package that has the library anew, or remove the file; in a container, hand the GPU's "
        "driver in (NVIDIA: --gpus all -e NVIDIA_DRIVER_CAPABILITIES=all)",
    )


def _manifests() -> list[Path]:
    """The manifests of Vulkan drivers that the loader reads."""
    for variable in ("VK_DRIVER_FILES", "VK_ICD_FILENAMES"):
        if chosen := os.environ.get(variable):
            return [Path(file) for file in chosen.split(os.pathsep) if file]
    return [file for folder in MANIFEST_FOLDERS for file in sorted(Path(folder).expanduser().glob("*.json"))]


def _load_error(manifest: Path) -> str:
    """Why the loader cannot use a driver's manifest; empty if it can, or if it is for other programs."""
    try:
        driver = json.loads(manifest.read_text(encoding="utf-8"))["ICD"]
        library = str(driver["library_path"])
    except (OSError, ValueError, TypeError, LookupError, RecursionError) as error:
        return f"cannot be read ({type(error).__name__}: {error})"
    if str(driver.get("library_arch", "64")) != "64":
        return ""
    try:
        # Like the loader: a bare name is searched for, a path is relative to the manifest.
        ctypes.CDLL(str(manifest.parent / library) if "/" in library else library)
    except OSError as error:
        return "" if "ELFCLASS" in str(error) else str(error)
    return ""


def _drivers() -> Finding:
    discovery = registry.find()
    described = [info.hardware for info in discovery.devices if info.compiles_only]
    gpus = [info for info in discovery.devices if info.type != "cpu" and not info.compiles_only]
    if discovery.vulkan_problem:
        return Finding("Vulkan drivers", False, "none", discovery.vulkan_problem)
    if not gpus and described:
        remedy = "they describe GPUs that are not here: unset RADV_FORCE_FAMILY, or " + INSTALL_DRIVER
        return Finding("Vulkan drivers", None, ", ".join(described) + " compiles only", remedy)
    if not gpus:
        return Finding("Vulkan drivers", False, "none of them has a device that computes", INSTALL_DRIVER)
    seen = "; ".join(
        [
            *(f"{d.hardware}: {d.driver} {d.driver_version} ({d.type})" for d in gpus),
            *(f"{hardware} compiles only" for hardware in described),
        ]
    )
    if all(info.type == "software" for info in gpus):
        return Finding("Vulkan drivers", None, seen, "only software drivers: " + INSTALL_DRIVER)
    return Finding("Vulkan drivers", True, seen)


def _render_nodes() -> Finding:
    nodes = sorted(Path("/dev/dri").glob("renderD*"))
    if not nodes:
        return Finding(
            "render nodes", None, "none in /dev/dri",
            "a GPU whose kernel driver is loaded has one; a container gets it by --device /dev/dri",
        )  # fmt: skip
    closed = [str(node) for node in nodes if not os.access(node, os.R_OK | os.W_OK)]
    if closed:
        return Finding(
            "render nodes", False, f"no permission for {', '.join(closed)}",
            "sudo usermod -aG render,video $USER, then log in again",
        )  # fmt: skip
    return Finding("render nodes", True, ", ".join(map(str, nodes)))


def _validation() -> Finding:
    try:
        installed = VALIDATION_LAYER in layers()
    except Dl4allError:
        installed = False
    if installed:
        return Finding("validation layer", True, VALIDATION_LAYER)
    install = "apt install vulkan-validationlayers"
    if validation_wanted():
        return Finding("validation layer", False, "missing", f"DL4ALL_VALIDATION asks for it: {install}")
    return Finding("validation layer", None, "missing", f"only for developing: {install}")


# dl4all's own parts


def _compiler() -> Finding:
    try:
        return Finding("GLSL compiler", True, compilers.pick().identity)
    except Dl4allError as error:
        return Finding("GLSL compiler", None if _bundled() else False, "missing or failing", str(error))


def _bundled() -> bool:
    """Whether this installation contains compiled shaders, so that no compiler is needed."""
    return (spirv.SHADERS / "spirv").is_dir()


def _cache() -> Finding:
    """Whether files can be written and read in the cache folder and in its existing subfolders."""
    folder = file_cache.folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for target in (folder, *(path for path in sorted(folder.iterdir()) if path.is_dir())):
            probe = target / f"doctor-{secrets.token_hex(8)}"
            try:
                file_cache.write(probe, b"probe")
                if file_cache.read(probe) != b"probe":
                    raise OSError(None, "what is written cannot be read again", str(target))
            finally:
                probe.unlink(missing_ok=True)
    except OSError as error:
        return Finding(
            "cache", None, f"{error.filename or folder}: {error.strerror}",
            "shaders are compiled and devices measured anew in every process; make it writable, "
            "or set DL4ALL_CACHE_DIR",
        )  # fmt: skip
    return Finding("cache", True, str(folder))


def _kompute() -> Finding:
    try:
        return Finding("Kompute", True, str(kp().__file__))
    except Dl4allError as error:
        return Finding("Kompute", None, "missing or failing", str(error))


def _blas() -> Finding:
    chosen = blas.kernels()
    if not chosen:
        return Finding("BLAS", True, "NumPy's own choice")
    if wider := blas.better(chosen):
        requested = blas.asked_for()
        why = (
            f"has {blas.CHOICE}={requested} from the environment"
            if requested
            else "takes this processor for an older one"
        )
        note = ", as it may without that setting" if requested else ""
        return Finding(
            "BLAS", None, f"OpenBLAS {why} ({chosen})",
            f"{blas.CHOICE}={wider} in the environment has the cpu multiply with wider vectors{note}",
        )  # fmt: skip
    return Finding("BLAS", True, f"OpenBLAS with kernels for {chosen}")


def _cpu_kernels() -> Finding:
    if target.binding() is None:
        if os.environ.get(target.SETTING) == "0":
            seen = f"{target.SETTING}=0: NumPy computes"
            remedy = f"without {target.SETTING} in the environment the cpu is several times faster"
        else:
            seen = "llvmlite is missing: NumPy computes"
            remedy = "pip install llvmlite makes the cpu several times faster"
        return Finding("CPU kernels", None, seen, remedy)
    threads = thread_pool.wanted_threads()
    many = f"{threads} thread{'' if threads == 1 else 's'}"
    return Finding("CPU kernels", True, f"{provider.description()}, {many}")


def _compute(name: str) -> Finding:
    """Raises DeviceError: the results differ from the CPU's."""
    if registry.describe(name).compiles_only:
        return Finding(f"computing on {name}", None, "compiles only", COMPILES)
    if problem := compare_with_cpu(device(name)):
        raise DeviceError(
            f"[doctor] {name} computes wrongly: {problem}; update its driver, or use another device"
        )
    return Finding(f"computing on {name}", True, "results equal the CPU's")


def _calibration() -> Finding:
    named = [(info, name) for info in registry.find().devices for name in info.names]
    results = {name: measurements.lookup(name, info) for info, name in named}
    if wrong := [f"{name}: {m.problem}" for name, m in results.items() if m is not None and m.problem]:
        return Finding(
            "calibration", False, "; ".join(wrong), f"left out by auto; update the driver, then {MEASURE}"
        )
    missing = [name for info, name in named if results[name] is None and not info.compiles_only]
    if missing:
        return Finding("calibration", None, f"not measured: {', '.join(missing)}", MEASURE)
    measured = [name for name, measurement in results.items() if measurement is not None]
    return Finding("calibration", True, f"measured: {', '.join(measured)}")
