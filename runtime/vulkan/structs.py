"""Building Vulkan's structures and objects in one line each."""

from __future__ import annotations

import contextlib
import functools
import weakref
from collections import deque
from typing import Any

from dl4all.runtime.vulkan.instance import api, check

# cffi keeps alive what it allocates only while the Python object lives, not what a structure points to. Not a
# WeakKeyDictionary: that runs a line of Python when a key goes, and an interrupt that comes there is lost.
_pointed_to: dict[weakref.ref[Any], tuple[Any, ...]] = {}
_gone: deque[weakref.ref[Any]] = deque()


def struct(name: str, **fields: Any) -> Any:
    """A new structure, its ``sType`` set if it has one; what its fields point to lives as long as it does."""
    fields = {field: value for field, value in fields.items() if value is not None}
    kind = _structure_types().get(name.lower())
    made = api().ffi.new(f"{name}*", fields if kind is None else {"sType": kind, **fields})
    while _gone:
        with contextlib.suppress(IndexError):  # another thread was quicker
            _pointed_to.pop(_gone.popleft(), None)
    _pointed_to[weakref.ref(made, _gone.append)] = tuple(fields.values())
    return made


def array(ctype: str, values: Any) -> Any:
    """A C array, to be pointed to by a structure: of numbers, or of structures given as dicts."""
    return api().ffi.new(f"{ctype}[]", values)


def create(kind: str, device: Any, what: str, handle: Any = None, **fields: Any) -> Any:
    """A new object: ``create("Fence", device, "a fence")`` is ``vkCreateFence``.

    `handle` is where Vulkan writes it to: who has that loses nothing if an exception comes before the return.

    Raises:
        OutOfMemoryError, DeviceLostError, DeviceError
    """
    vulkan = api()
    handle = vulkan.ffi.new(f"Vk{kind}*") if handle is None else handle
    info = struct(f"Vk{kind}CreateInfo", **fields)
    call = getattr(vulkan.lib, f"vkCreate{kind}")
    check(call(device, info, vulkan.ffi.NULL, handle), f"creating {what}")
    return handle[0]


def destroy(kind: str, device: Any, handle: Any) -> None:
    """Undo :func:`create`."""
    vulkan = api()
    getattr(vulkan.lib, f"vkDestroy{kind}")(device, handle, vulkan.ffi.NULL)


@functools.cache
def _structure_types() -> dict[str, int]:
    """sType by a structure's name in lower case: that of VkFenceCreateInfo is FENCE_CREATE_INFO."""
    vulkan = api()
    prefix = "VK_STRUCTURE_TYPE_"
    return {
        "vk" + name.removeprefix(prefix).replace("_", "").lower(): getattr(vulkan, name)
        for name in dir(vulkan)
        if name.startswith(prefix)
    }
