"""The event of streams that wait for every command."""

from __future__ import annotations


class Finished:
    """An event that has come: nothing is ever pending where it was recorded."""

    __slots__ = ()

    def query(self) -> bool:
        return True

    def synchronize(self, timeout: float | None = None) -> bool:
        return True


FINISHED = Finished()
