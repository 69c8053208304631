"""A dict for what saves time only, under keys that users' sizes make: it cannot grow without end."""

from __future__ import annotations

from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


class BoundedDict(dict[K, V]):
    """A dict of at most ``most`` entries: a new one takes the place of the one that came first.

    Looking up costs what it costs in any dict, and may be done by any thread. One thread at a time may add.

    >>> recent = BoundedDict[str, int](2)
    >>> for number, name in enumerate("abcb"):
    ...     recent[name] = number
    >>> recent
    {'b': 3, 'c': 2}
    """

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most

    def __setitem__(self, key: K, value: V) -> None:
        if key not in self:
            while len(self) >= self.most:
                self.pop(next(iter(self)), None)
        super().__setitem__(key, value)
