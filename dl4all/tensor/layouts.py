"""Kinds of storage of tensors under PyTorch's names: all tensors of dl4all are dense, ``dl.strided``."""

from __future__ import annotations

import enum

__all__ = ["layout", "strided"]


class layout(enum.Enum):
    """The kind of a tensor's storage: ``dl.strided`` is that of every dense tensor.

    Example:
        >>> import dl4all as dl
        >>> dl.strided
        dl4all.strided
    """

    strided = 0

    def __repr__(self) -> str:
        return f"dl4all.{self.name}"


strided = layout.strided
