"""Which op, and which region of the user's, a thread works in: what debuggers show around dispatches.

Ops ask ``watched`` once per call, which is all that this costs while no device shows regions.
"""

from __future__ import annotations

import contextlib

from dl4all.runtime.scopes import ScopedSetting, assigned

watched = False
"""Whether a device that is open shows regions to a tool."""


class Region:
    """One pass through a region: two calls of an op are two of them."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name


_path: ScopedSetting[tuple[Region, ...]] = ScopedSetting(())


def path() -> tuple[Region, ...]:
    """The regions that this thread is in, the innermost last."""
    return _path.value


def within(name: str) -> contextlib.AbstractContextManager[None]:
    """Within the ``with`` block, this thread is in one more region.

    >>> with within("relu"):
    ...     [region.name for region in path()]
    ['relu']
    """
    return assigned(_path, (*_path.value, Region(name)))


def debug_region(name: str) -> contextlib.AbstractContextManager[None]:
    """Group what a ``with`` block computes under a name in RenderDoc, RGP or Nsight.

    Regions nest, and every op is one by itself. They are shown where names are on, as
    ``DL4ALL_DEBUG_NAMES=1`` has it (docs/debuggers.md); elsewhere this does nothing.

    Args:
        name: what the tool shows.

    Example:
        >>> import dl4all as dl
        >>> with dl.debug_region("first layer"):
        ...     y = dl.ones(2, 3).relu()
    """
    return within(name) if watched else contextlib.nullcontext()
