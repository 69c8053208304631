"""PyTorch's orders of axes in memory, by name."""

from __future__ import annotations

import enum
from typing import Any, TypeAlias

from dl4all.errors import ArgumentError


class memory_format(enum.Enum):
    """An order of axes in memory that PyTorch knows.

    Methods and layers take one for PyTorch's sake. dl4all chooses the order itself, which no result shows: it
    computes the same elements, and a tensor stays in the order that it has.

    Example:
        >>> import dl4all as dl
        >>> images = dl.ones(1, 2, 3, 3).to(memory_format=dl.channels_last)
        >>> dl.channels_last, images.shape
        (dl4all.channels_last, (1, 2, 3, 3))
    """

    contiguous_format = 0
    preserve_format = 1
    channels_last = 2
    channels_last_3d = 3

    def __repr__(self) -> str:
        return f"dl4all.{self.name}"


MemoryFormat: TypeAlias = memory_format | None

contiguous_format = memory_format.contiguous_format
preserve_format = memory_format.preserve_format
channels_last = memory_format.channels_last
channels_last_3d = memory_format.channels_last_3d


def check_memory_format(name: str, value: Any) -> None:
    """
    Raises:
        ArgumentError: it is no memory format.
    """
    if value is not None and not isinstance(value, memory_format):
        raise ArgumentError(
            f"[{name}] memory_format must be one such as dl.contiguous_format or dl.channels_last, "
            f"got {value!r}"
        )
