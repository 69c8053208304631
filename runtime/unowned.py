"""Buffers that nobody holds: what an exception cut off between its making and its first owner."""

from __future__ import annotations

import sys
from collections.abc import Collection
from typing import TypeVar

T = TypeVar("T")

REFERENCES = 4  # to one that is only known here: the collection's, two of the loop below, and the argument's


def unowned(buffers: Collection[T]) -> list[T]:
    """The objects that only `buffers` itself refers to.

    >>> class Buffer: ...
    >>> owner = Buffer()
    >>> made = {owner, Buffer()}
    >>> [buffer is owner for buffer in unowned(made)]
    [False]
    """
    return [buffer for buffer in tuple(buffers) if sys.getrefcount(buffer) <= REFERENCES]
