"""A point in a stream: a value of its timeline."""

from __future__ import annotations

from typing import NamedTuple

from dl4all.runtime.vulkan.timeline import Timeline


class VulkanEvent(NamedTuple):
    """The submissions up to a value of a timeline."""

    timeline: Timeline
    value: int

    def query(self) -> bool:
        return self.timeline.query(self.value)

    def synchronize(self, timeout: float | None = None) -> bool:
        return self.timeline.wait(self.value, timeout)
