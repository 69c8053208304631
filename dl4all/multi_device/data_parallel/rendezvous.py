"""Values that the devices of a group exchange while they compute."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from dl4all.errors import DeviceError
from dl4all.runtime.simulated import clock
from dl4all.runtime.simulated.backend import Hang
from dl4all.runtime.threads import Condition


class Interrupted(DeviceError):
    """Another device of the group has failed, so that what this one waits for will not come."""


class Rendezvous:
    """A meeting point of the threads of several devices.

    Args:
        parties: how many threads there are, numbered from 0.
        timeout: seconds after which whoever has not come is given up.
    """

    def __init__(self, parties: int, timeout: float) -> None:
        self._parties, self._timeout = parties, timeout
        self._changed = Condition()
        self._exchanged: dict[Hashable, dict[int, tuple[Any, float]]] = {}
        self._left: dict[Hashable, int] = {}  # parties that have not yet taken what was exchanged
        self._given: dict[Hashable, tuple[Any, float]] = {}
        self.error: BaseException | None = None
        self.failed: int | None = None
        """The party that failed first; None if that was whoever takes what the parties give."""

    def fail(self, party: int | None, error: BaseException) -> None:
        """Let all who wait, and who come later, go on with an error. The first failure counts."""
        with self._changed.lock:
            if self.error is None:
                self.error, self.failed = error, party
            self._changed.notify_all()

    def exchange(self, party: int, key: Hashable, value: Any) -> list[Any]:
        """Give a value and wait for the others'; returns all, in the order of the parties.

        Raises:
            Interrupted: another party has failed, or has not come in time.
        """
        with self._changed.lock:
            values = self._exchanged.setdefault(key, {})
            values[party] = value, clock.now()
            self._changed.notify_all()
        self._wait(
            lambda: len(values) == self._parties,
            lambda: next(number for number in range(self._parties) if number not in values),
        )
        with self._changed.lock:
            clock.advance_to(max(time for _, time in values.values()))
            self._left[key] = self._left.get(key, self._parties) - 1
            if not self._left[key]:
                del self._exchanged[key], self._left[key]
            return [values[number][0] for number in range(self._parties)]

    def give(self, key: Hashable, value: Any) -> None:
        """Give a value that one other thread takes."""
        with self._changed.lock:
            self._given[key] = value, clock.now()
            self._changed.notify_all()

    def take(self, key: Hashable, party: int) -> Any:
        """Wait for a value that a party gives.

        Raises:
            Interrupted: a party has failed, or this one has not given it in time.
        """
        self._wait(lambda: key in self._given, lambda: party)
        with self._changed.lock:
            value, time = self._given.pop(key)
        clock.advance_to(time)
        return value

    def _wait(self, has_come: Callable[[], bool], missing: Callable[[], int]) -> None:
        self._changed.wait_for(lambda: has_come() or self.error is not None, self._timeout)
        with self._changed.lock:
            if has_come():
                return
            if self.error is None:
                self.failed = missing()
                self.error = Hang(f"it did not answer within {self._timeout:g} seconds")
                self._changed.notify_all()
        raise Interrupted("[parallel] another device of the group has failed")
