"""A Vulkan driver that counts calls and objects, and fails when it is told to."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from typing import Any

from dl4all.runtime.vulkan.instance import api

LOST = -4  # VK_ERROR_DEVICE_LOST
RETURNS_RESULT = re.compile(
    "vk(Create|Allocate|Bind|Map|Begin|End|Queue|Wait|Reset|Merge|Get(Semaphore|Fence|Pipeline|Query)|Enumerate)"
)


class Driver:
    """Stands in for ``vulkan.lib``.

    ``calls`` counts calls by function. ``live`` counts objects that were made and not destroyed; those
    that go with their pool (command buffers, descriptor sets) and with the process (the instance) are left
    out.
    """

    def __init__(self, lib: Any) -> None:
        self._lib = lib
        self.calls: Counter[str] = Counter()
        self.live: Counter[str] = Counter()
        self._fail_at: dict[str, tuple[int, int]] = {}
        self._lost = False

    def fail(self, name: str, call: int, result: int) -> None:
        """Let call number `call` (from 0, counted from now) of a function return `result`.

        Once a device is lost, everything that waits for it or gives it work says so.
        """
        self._fail_at[name] = (self.calls[name] + call, result)

    def recover(self) -> None:
        """Work again, and count calls from 0."""
        self.calls.clear()
        self._fail_at.clear()
        self._lost = False

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("vk"):
            return getattr(self._lib, name)
        call = self._wrap(name, getattr(self._lib, name))
        setattr(self, name, call)
        return call

    def _wrap(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        made = re.fullmatch("vk(?:Create|Allocate)(.*)", name)
        gone = re.fullmatch("vk(?:Destroy|Free)(.*)", name)

        def call(*args: Any) -> Any:
            number = self.calls[name]
            self.calls[name] += 1
            at, result = self._fail_at.get(name, (-1, 0))
            if number == at:
                self._lost = self._lost or result == LOST
                return result
            if self._lost and name in ("vkQueueSubmit", "vkWaitForFences", "vkWaitSemaphores"):
                return LOST
            if gone and args[0 if name == "vkDestroyDevice" else 1]:
                self.live[_object(gone[1])] -= 1
            result = real(*args)
            if made and result == 0 and made[1] not in ("CommandBuffers", "DescriptorSets"):
                self.live[_object(made[1])] += 1
            return result

        return call

    @property
    def left(self) -> dict[str, int]:
        """The objects that are still there."""
        return {name: count for name, count in self.live.items() if count}

    def failing(self) -> dict[str, int]:
        """How often each function was called that can fail."""
        return {name: count for name, count in self.calls.items() if RETURNS_RESULT.match(name)}


def _object(name: str) -> str:
    return {"ComputePipelines": "Pipeline"}.get(name, name)


def install(monkeypatch: Any) -> Driver:
    """Make every device that is opened from now on use a counting driver."""
    driver = Driver(api().lib)
    monkeypatch.setattr(api(), "lib", driver)
    return driver
