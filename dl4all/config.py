"""Settings from the environment and from ``dl4all.toml``.

The file is looked for in the working directory, then in the user's configuration folder; the
first one that exists counts. A working directory that was deleted has none. An environment variable
overrides the file::

    # dl4all.toml
    device = "vulkan:0"     # what device="auto" means, not "null"; environment: DL4ALL_DEVICE
    calibrate = false       # do not measure GPUs when "auto" first needs it; DL4ALL_CALIBRATE=0
    tune = true             # find the fastest kernels while computing; DL4ALL_TUNE=lazy
    fallback = "error"      # what runs on the CPU for want of a kernel raises; DL4ALL_FALLBACK=error
    texel_buffers = true    # vulkan kernels read through texel buffers, or never; DL4ALL_TEXEL_BUFFERS=1
    torch_fallback = "error"  # the same for tensors of PyTorch on dlall; DL4ALL_TORCH_FALLBACK=error
    checks = "immediate"    # ops wait for indices on a device to check them; DL4ALL_CHECKS=immediate
    mixed = "error"         # data on the CPU does not come along to a device; DL4ALL_MIXED=error
    cuda = false            # "cuda" names no device: DL4ALL_CUDA=0
    winograd = false        # no convolution transforms tiles of images: DL4ALL_WINOGRAD=0
"""

from __future__ import annotations

import os
import reprlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar, get_args

import platformdirs

from dl4all.errors import ConfigError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

KNOWN = {  # type of each setting's value, and the type in words
    "device": (str, 'text such as "vulkan:0"'),
    "calibrate": (bool, "true or false"),
    "tune": (bool, "true or false"),
    "fallback": (str, '"warn", "silent" or "error"'),
    "texel_buffers": (bool, "true or false"),
    "torch_fallback": (str, '"warn", "silent" or "error"'),
    "checks": (str, '"deferred" or "immediate"'),
    "mixed": (str, '"move" or "error"'),
    "cuda": (bool, "true or false"),
    "winograd": (bool, "true or false"),
}
FallbackMode = Literal["warn", "silent", "error"]
CheckMode = Literal["deferred", "immediate"]
MixedMode = Literal["move", "error"]
Mode = TypeVar("Mode", FallbackMode, CheckMode, MixedMode)
MAX_BYTES = 1 << 20  # of a TOML file


class Setting(NamedTuple):
    """A value and its source: a variable or a file."""

    value: str
    source: str


def device_setting() -> Setting | None:
    """The device that the user has chosen for ``auto``; None if there is no choice.

    Raises:
        ConfigError: the file cannot be read or has an unknown setting.
    """
    if name := os.environ.get("DL4ALL_DEVICE"):
        return Setting(name, "DL4ALL_DEVICE")
    values, source = _file()
    name = values.get("device")
    return Setting(name, source) if name else None


def calibrates_by_itself() -> bool:
    """Whether ``auto`` may measure devices when it first has to choose between them; true by default.

    Raises:
        ConfigError: DL4ALL_CALIBRATE or the file has an unusable value.
    """
    return _flag("DL4ALL_CALIBRATE", "calibrate") is not False


def cuda_setting() -> bool:
    """Whether ``"cuda"`` names the accelerator, as scripts for PyTorch ask for it; true by default.

    Raises:
        ConfigError: DL4ALL_CUDA or the file has an unusable value.
    """
    return _flag("DL4ALL_CUDA", "cuda") is not False


def winograd_setting() -> bool:
    """Whether Winograd's algorithm may convolve, which adds elements of a whole tile; true by default.

    Raises:
        ConfigError: DL4ALL_WINOGRAD or the file has an unusable value.
    """
    return _flag("DL4ALL_WINOGRAD", "winograd") is not False


def tune_setting() -> Literal["off", "kept", "lazy"]:
    """The way to choose a kernel among several for the same problem.

    ``off`` uses built-in rules, ``kept`` the results of ``dl4all tune`` where there are any, and ``lazy``
    measures when a kernel is first needed. The default is ``kept``; DL4ALL_TUNE=0 and ``tune = false`` mean
    ``off``, DL4ALL_TUNE=lazy or 1 and ``tune = true`` mean ``lazy``.

    Raises:
        ConfigError: DL4ALL_TUNE or the file has an unusable value.
    """
    value = os.environ.get("DL4ALL_TUNE", "")
    if value not in ("", "0", "1", "lazy"):
        raise ConfigError(f"DL4ALL_TUNE must be 0, 1, lazy or empty, not {value!r}")
    if value:
        return "off" if value == "0" else "lazy"
    tunes = _file()[0].get("tune")
    return "kept" if tunes is None else "lazy" if tunes else "off"


def texel_buffer_setting() -> bool | None:
    """Whether kernels of the ``vulkan`` backend read through texel buffers; None: where that is faster.

    Raises:
        ConfigError: DL4ALL_TEXEL_BUFFERS or the file has an unusable value.
    """
    return _flag("DL4ALL_TEXEL_BUFFERS", "texel_buffers")


def fallback_setting() -> FallbackMode:
    """The reaction to an op that a device has no kernel for; ``warn`` by default.

    Raises:
        ConfigError: DL4ALL_FALLBACK or the file has an unusable value.
    """
    return _choice("DL4ALL_FALLBACK", "fallback", "warn", get_args(FallbackMode))


def torch_fallback_setting() -> FallbackMode:
    """The reaction to an op of PyTorch that dl4all cannot compute on its device; ``warn`` by default.

    Raises:
        ConfigError: DL4ALL_TORCH_FALLBACK or the file has an unusable value.
    """
    return _choice("DL4ALL_TORCH_FALLBACK", "torch_fallback", "warn", get_args(FallbackMode))


def checks_setting() -> CheckMode:
    """When ops that take indices on a device raise an error about them, ``"deferred"`` by default.

    Raises:
        ConfigError: the file cannot be read, or the setting has another value.
    """
    return _choice("DL4ALL_CHECKS", "checks", "deferred", get_args(CheckMode))


def mixed_setting() -> MixedMode:
    """The treatment of data of the CPU beside tensors of a device, unless it was named; ``move`` by default.

    Raises:
        ConfigError: DL4ALL_MIXED or the file has an unusable value.
    """
    return _choice("DL4ALL_MIXED", "mixed", "move", get_args(MixedMode))


def _flag(variable: str, key: str = "") -> bool | None:
    """A switch, by an environment variable, else by the file's key if there is one; None where neither is."""
    value = os.environ.get(variable, "")
    if value not in ("", "0", "1"):
        raise ConfigError(f"{variable} must be 0, 1 or empty, not {value!r}")
    if value:
        return value == "1"
    setting = _file()[0].get(key) if key else None
    return None if setting is None else bool(setting)


def _choice(variable: str, key: str, usual: Mode, modes: tuple[Mode, ...]) -> Mode:
    """One of several modes, by an environment variable, else by the file, else the usual one."""
    value, source = os.environ.get(variable, ""), variable
    if not value:
        values, file = _file()
        value, source = values.get(key, usual), f"{file}: {key}"
    for mode in modes:
        if value == mode:
            return mode
    raise ConfigError(f"{source} must be {', '.join(modes[:-1])} or {modes[-1]}, not {shown(value)}")


def least_limits() -> bool:
    """Whether ``DL4ALL_LIMITS=minimum`` restricts Vulkan devices to the limits that every device has.

    Raises:
        ConfigError: the variable has another value.
    """
    value = os.environ.get("DL4ALL_LIMITS", "")
    if value not in ("", "minimum"):
        raise ConfigError(f"DL4ALL_LIMITS must be minimum or empty, not {value!r}")
    return value == "minimum"


def allocator_setting() -> str:
    """The strategy that ``DL4ALL_ALLOCATOR`` forces, ``pool`` or ``best_fit``; empty if it is not set.

    Raises:
        ConfigError: the variable has another value.
    """
    value = os.environ.get("DL4ALL_ALLOCATOR", "")
    if value not in ("", "pool", "best_fit"):
        raise ConfigError(f"DL4ALL_ALLOCATOR must be pool, best_fit or empty, not {value!r}")
    return value


def debug_names_setting() -> bool | None:
    """Whether ``DL4ALL_DEBUG_NAMES`` asks for names that debuggers show; None if it is not set.

    Raises:
        ConfigError: the variable has another value than 0 and 1.
    """
    return _flag("DL4ALL_DEBUG_NAMES")


def memory_debug() -> bool:
    """Whether ``DL4ALL_MEMORY_DEBUG=1`` asks for guards around the memory of tensors.

    Raises:
        ConfigError: the variable has another value.
    """
    return _flag("DL4ALL_MEMORY_DEBUG") is True


def dump_folder() -> Path | None:
    """The folder of ``DL4ALL_DUMP``, where generated shaders are written to; None if it is not set."""
    value = os.environ.get("DL4ALL_DUMP", "")
    return Path(value) if value else None


def top_setting() -> Literal["never", "when_shared", "always"]:
    """When a process tells ``dl4all top`` what its devices do.

    The default is ``when_shared``: when it has a group of devices or a stream, or trains. ``DL4ALL_TOP=0``
    means ``never``, and ``DL4ALL_TOP=1`` ``always``: as soon as it has opened a device.

    Raises:
        ConfigError: the variable has another value.
    """
    value = os.environ.get("DL4ALL_TOP", "")
    if value == "":
        return "when_shared"
    if value not in ("0", "1"):
        raise ConfigError(f"DL4ALL_TOP must be 0, 1 or empty, not {value!r}")
    return "always" if value == "1" else "never"


def disabled_passes(known: Sequence[str]) -> frozenset[str]:
    """The passes of the graph compiler that ``DL4ALL_PASSES`` leaves out, of those that are known.

    ``none`` leaves out all. Names with a minus leave out these, as in ``-preamble,-dead_code``; names
    without one leave out all others.

    Raises:
        ConfigError: a name is unknown, or only some have a minus.
    """
    value = os.environ.get("DL4ALL_PASSES", "").replace(" ", "")
    if value in ("", "none"):
        return frozenset(known) if value else frozenset()
    words = value.split(",")
    names = frozenset(word.removeprefix("-") for word in words)
    if unknown := sorted(names.difference(known)):
        raise ConfigError(f"DL4ALL_PASSES has no pass {unknown[0]!r}; there are {', '.join(known)}, or none")
    signs = {word.startswith("-") for word in words}
    if len(signs) > 1:
        raise ConfigError(f"DL4ALL_PASSES must have a minus before each name, or before none, not {value!r}")
    return names if True in signs else frozenset(known) - names


def verifies_graphs() -> bool:
    """Whether ``DL4ALL_VERIFY_GRAPHS=1`` asks for a check of each graph, after each pass that changes it.

    Raises:
        ConfigError: the variable has another value.
    """
    value = os.environ.get("DL4ALL_VERIFY_GRAPHS", "")
    if value not in ("", "0", "1"):
        raise ConfigError(f"DL4ALL_VERIFY_GRAPHS must be 0, 1 or empty, not {value!r}")
    return value == "1"


def _file() -> tuple[dict[str, Any], str]:
    """The settings in the file, and its name; both empty if there is no file."""
    for folder in (*_working_directory(), platformdirs.user_config_path("dl4all")):
        path = folder / "dl4all.toml"
        if _is_file(path):
            return _read(path), str(path)
    return {}, ""


def _working_directory() -> tuple[Path, ...]:
    """Empty where it was deleted."""
    try:
        return (Path.cwd(),)
    except OSError:
        return ()


def _is_file(path: Path) -> bool:
    """False also where this user may not look into the folder."""
    try:
        return path.is_file()
    except OSError:
        return False


def _read(path: Path) -> dict[str, Any]:
    """The checked settings of a file.

    Raises:
        ConfigError: the file cannot be read, or a setting is unknown or has a value of another type.
    """
    try:
        values = read_toml(path)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from None
    for name, value in values.items():
        if name not in KNOWN:
            raise ConfigError(f"{path}: unknown setting {shown(name)}; known are {', '.join(KNOWN)}")
        expected, description = KNOWN[name]
        if not isinstance(value, expected):
            raise ConfigError(f"{path}: {name} must be {description}, not {shown(value)}")
    return values


def read_toml(path: Path) -> dict[str, Any]:
    """The content of a TOML file.

    Raises:
        OSError: the file cannot be read.
        ValueError: it has more than MAX_BYTES, is no TOML, or is nested too deeply for Python.
    """
    with path.open("rb") as stream:  # a device may have no end
        content = stream.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise ValueError(f"it has more than {MAX_BYTES} bytes")
    try:
        return tomllib.loads(content.decode("utf-8"))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def shown(value: object) -> str:
    """A value from a file for one line of a message, however large or deeply nested it is.

    >>> shown("vulkan:0"), shown([1, [2]]), len(shown("x" * 1000)), shown(1 << 100_000)
    ("'vulkan:0'", '[1, [2]]', 120, 'a number of 100001 bits')
    """
    try:
        return _brief.repr(value)
    except ValueError:  # Python writes no number of more than 4300 digits
        return f"a number of {value.bit_length()} bits" if isinstance(value, int) else "a large number"


_brief = reprlib.Repr()
_brief.maxstring = _brief.maxother = 120
