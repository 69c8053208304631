"""The process's Vulkan instances, and what their result codes mean."""

from __future__ import annotations

import atexit
import functools
import os
from collections.abc import Sequence
from typing import Any

from dl4all.config import debug_names_setting
from dl4all.errors import BackendMissingError, DeviceError, DeviceLostError, OutOfMemoryError
from dl4all.runtime import fork
from dl4all.runtime.vulkan.debug import debug_tools

NO_LOADER = (
    "the Vulkan loader (libvulkan.so.1) is missing; install it together with a driver: "
    "apt install libvulkan1 mesa-vulkan-drivers, dnf install vulkan-loader mesa-vulkan-drivers, "
    "or pacman -S vulkan-icd-loader and your GPU's driver"
)
NO_DRIVER = (
    "no Vulkan driver is installed; for AMD, Intel and software rendering: "
    "apt install mesa-vulkan-drivers (dnf: mesa-vulkan-drivers; pacman: vulkan-radeon, vulkan-intel "
    "or vulkan-swrast); for NVIDIA the vendor's driver"
)
WHOLE_SIZE = 2**64 - 1  # VK_WHOLE_SIZE, which the package has as -1
PORTABILITY, ENUMERATE_PORTABILITY = "VK_KHR_portability_enumeration", 1
"""The extension, and the flag of an instance, without which the loader hides some drivers."""
VALIDATION_LAYER = "VK_LAYER_KHRONOS_validation"


@functools.cache
def api() -> Any:
    """The `vulkan` package, whose ``lib`` and ``ffi`` are the raw API.

    Raises:
        BackendMissingError: the package or the loader is missing.
        ForkError: the parent of this process had opened a device.
    """
    fork.check("vulkan")
    try:
        import vulkan
    except OSError:
        raise BackendMissingError(f"[vulkan] {NO_LOADER}") from None
    except ImportError:
        raise BackendMissingError("[vulkan] the package is missing: pip install vulkan") from None
    return vulkan


def version(number: int) -> str:
    """A packed Vulkan version as text.

    >>> version((1 << 22) | (3 << 12) | 230)
    '1.3.230'
    """
    return f"{(number >> 22) & 0x7F}.{(number >> 12) & 0x3FF}.{number & 0xFFF}"


def check(result: int, what: str, other: type[DeviceError] = DeviceError) -> None:
    """Turn a VkResult other than success into the typed error, `other` where nothing more is known.

    Raises:
        OutOfMemoryError, DeviceLostError, DeviceError
    """
    if result == 0:
        return
    name = _result_names().get(result, str(result))
    if name in ("VK_ERROR_OUT_OF_DEVICE_MEMORY", "VK_ERROR_OUT_OF_HOST_MEMORY"):
        raise OutOfMemoryError(f"[vulkan] {what}: {name}; free tensors or use a smaller batch")
    if name == "VK_ERROR_DEVICE_LOST":
        raise DeviceLostError(
            f"[vulkan] {what}: the driver gave the device up (a hung or too long shader, or a reset); "
            "data on the host is intact, what was on the device is gone"
        )
    raise other(f"[vulkan] {what} failed: {name}")


@functools.cache
def _result_names() -> dict[int, str]:
    vulkan = api()
    return {
        getattr(vulkan, name): name
        for name in dir(vulkan)
        if name.startswith(("VK_ERROR_", "VK_NOT_", "VK_TIMEOUT", "VK_INCOMPLETE"))
        and isinstance(getattr(vulkan, name), int)
    }


def validation_wanted() -> bool:
    return os.environ.get("DL4ALL_VALIDATION", "") not in ("", "0")


def loader_version() -> int:
    """The highest Vulkan version of the loader, packed.

    Raises:
        BackendMissingError: there is no loader.
    """
    found = api().ffi.new("uint32_t*")
    check(api().lib.vkEnumerateInstanceVersion(found), "asking for the loader's version")
    return int(found[0])


def layers() -> set[str]:
    """The names of the layers that the loader knows.

    Raises:
        BackendMissingError: there is no loader.
    """
    ffi, lib = api().ffi, api().lib
    count = ffi.new("uint32_t*")
    check(lib.vkEnumerateInstanceLayerProperties(count, ffi.NULL), "listing layers")
    found = ffi.new("VkLayerProperties[]", count[0])
    check(lib.vkEnumerateInstanceLayerProperties(count, found), "listing layers")
    return {ffi.string(found[i].layerName).decode() for i in range(count[0])}


@functools.cache
def instance(number: int = 0) -> Any:
    """A VkInstance, created on first use and destroyed at exit.

    Drivers share what belongs to a physical device, such as llvmpipe's threads, between the devices that are
    opened through one instance: each further opening has an instance of its own.

    With ``DL4ALL_VALIDATION=1`` the Khronos validation layer checks every call; where it writes
    its messages is the layer's own setting.

    Where debuggers are to see names, it has the extension for them. Drivers that leave parts of Vulkan out,
    as MoltenVK on macOS, are listed too: compute needs none of these parts.

    Raises:
        BackendMissingError: there is no loader, or no driver behind it.
        ConfigError: DL4ALL_DEBUG_NAMES holds something unusable.
    """
    setting = debug_names_setting()
    made = _create([debug_tools.EXTENSION] if setting else [])
    if setting is None and debug_tools.wanted(api(), made):
        _destroy(made)
        made = _create([debug_tools.EXTENSION])
    atexit.register(_destroy, made)
    return made


def _create(extensions: list[str]) -> Any:
    """
    Raises:
        BackendMissingError: there is no driver, no layer that was asked for, or a damaged manifest.
    """
    vulkan = api()
    for names in dict.fromkeys(((*extensions, PORTABILITY), (PORTABILITY,), tuple(extensions), ())):
        result, handle = _requested(names)
        if result != vulkan.VK_ERROR_EXTENSION_NOT_PRESENT:  # older loaders lack one or both
            break
    if result == vulkan.VK_ERROR_INCOMPATIBLE_DRIVER:
        raise BackendMissingError(f"[vulkan] {NO_DRIVER}")
    if result == vulkan.VK_ERROR_LAYER_NOT_PRESENT:
        raise BackendMissingError(
            f"[vulkan] DL4ALL_VALIDATION asks for {VALIDATION_LAYER}, which is not installed: "
            "apt install vulkan-validationlayers"
        )
    if result == vulkan.VK_ERROR_OUT_OF_HOST_MEMORY:  # what some loaders say of a manifest they cannot read
        raise BackendMissingError(
            "[vulkan] the loader could not start; a driver's or layer's manifest may be damaged: "
            "dl4all doctor names the files"
        )
    check(result, "vkCreateInstance")
    return handle


def _requested(extensions: Sequence[str]) -> tuple[int, Any]:
    """The result of a request for an instance, and the instance."""
    vulkan = api()
    ffi, lib = vulkan.ffi, vulkan.lib
    wanted = [ffi.new("char[]", VALIDATION_LAYER.encode())] if validation_wanted() else []
    layer_names = ffi.new("char*[]", wanted)
    enabled = [ffi.new("char[]", name.encode()) for name in extensions]
    extension_names = ffi.new("char*[]", enabled)
    application = ffi.new(
        "VkApplicationInfo*",
        {
            "sType": vulkan.VK_STRUCTURE_TYPE_APPLICATION_INFO,
            "apiVersion": (1 << 22) | (3 << 12),  # the highest version whose features are looked at
        },
    )
    create = ffi.new(
        "VkInstanceCreateInfo*",
        {
            "sType": vulkan.VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO,
            "flags": ENUMERATE_PORTABILITY if PORTABILITY in extensions else 0,
            "pApplicationInfo": application,
            "enabledLayerCount": len(wanted),
            "ppEnabledLayerNames": layer_names,
            "enabledExtensionCount": len(enabled),
            "ppEnabledExtensionNames": extension_names,
        },
    )
    handle = ffi.new("VkInstance*")
    return lib.vkCreateInstance(create, ffi.NULL, handle), handle[0]


def _destroy(made: Any) -> None:
    api().lib.vkDestroyInstance(made, api().ffi.NULL)


def _forked() -> None:
    """A child makes instances of its own, or none."""
    atexit.unregister(_destroy)
    instance.cache_clear()
    if fork.refused:
        api.cache_clear()  # everybody gets the error from it


fork.in_child(_forked)
