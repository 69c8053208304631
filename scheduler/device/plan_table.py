"""The launch plans of a device, and the calls that might get one."""

from __future__ import annotations

from typing import Any

from dl4all.runtime import fork
from dl4all.runtime.bounded_dict import BoundedDict

MOST_PLANS = 4096
"""Plans that a device keeps."""

MOST_SEEN = 1024
"""Calls without a plan that are remembered."""


class PlanTable:
    """Plans by what decides on launches, and the calls that were seen once.

    >>> plans = PlanTable()
    >>> plans.recurs("add"), plans.recurs("add"), plans.get("add")
    (False, True, None)
    >>> plans.keep("add", "one launch")
    >>> plans.get("add")
    'one launch'
    """

    def __init__(self) -> None:
        self._plans = BoundedDict[Any, Any](MOST_PLANS)
        self._seen = BoundedDict[Any, None](MOST_SEEN)
        self._lock = fork.lock()  # of who adds
        self.get = self._plans.get
        """The plan of a key; None without one. Any thread may ask."""

    def __len__(self) -> int:
        return len(self._plans)

    def recurs(self, key: Any) -> bool:
        """Whether there was a call with this key before, not long ago; only such calls are worth a plan."""
        with self._lock:
            if key in self._seen:
                return True
            self._seen[key] = None
            return False

    def keep(self, key: Any, plan: Any) -> None:
        """Keep a plan until the table is cleared, or there are too many."""
        with self._lock:
            self._plans[key] = plan

    def clear(self) -> None:
        """Have ops look again at which kernels they launch: something that decides on it has changed."""
        with self._lock:
            self._plans.clear()
            self._seen.clear()
