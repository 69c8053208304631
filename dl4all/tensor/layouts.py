"""Names of memory layouts, which PyTorch's functions take: tensors here lie in row-major order.

``channels_last`` asks PyTorch for the same numbers at other places of memory, to be faster. It is taken and has
no effect.
"""

from __future__ import annotations

__all__ = [
    "channels_last",
    "channels_last_3d",
    "contiguous_format",
    "layout",
    "memory_format",
    "preserve_format",
    "strided",
]


class _Name:
    """A name that is equal to itself, in copies and pickles too."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"dl4all.{self.name}"

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and vars(other) == vars(self)

    def __hash__(self) -> int:
        return hash(self.name)


class memory_format(_Name):
    """The order of elements in memory.

    Example:
        >>> import dl4all as dl
        >>> dl.channels_last
        dl4all.channels_last
    """


class layout(_Name):
    """The kind of storage: ``dl.strided`` is that of every dense tensor."""


contiguous_format = memory_format("contiguous_format")
channels_last = memory_format("channels_last")
channels_last_3d = memory_format("channels_last_3d")
preserve_format = memory_format("preserve_format")
strided = layout("strided")
