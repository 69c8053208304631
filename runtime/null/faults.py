"""A null device whose calls fail when a test asks for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from dl4all.errors import ArgumentError
from dl4all.runtime.device_info import DeviceInfo
from dl4all.runtime.null.backend import NullBackend

Call = Literal[
    "allocate", "program", "dispatch", "copy", "fill", "upload", "download", "record", "replay",
    "record_event", "wait_event", "new_stream", "synchronize",
]  # fmt: skip
"""The calls that can be made to fail."""


@dataclass
class _Fault:
    call: str
    after: int  # calls that still succeed
    times: int  # calls that fail then
    error: Exception


class FaultyBackend(NullBackend):
    """The null device, with faults to come."""

    def __init__(self, info: DeviceInfo | None = None, features: frozenset[str] = frozenset()) -> None:
        self._faults: list[_Fault] = []
        super().__init__(info, features)

    def fail(self, call: Call, *, after: int = 0, times: int = 1, error: Exception) -> None:
        """Let `after` more calls succeed, then `times` calls raise `error`.

        Raises:
            ArgumentError: there is no such call.
        """
        if call not in get_args(Call):
            raise ArgumentError(f"[null] nothing is called {call!r}; use {', '.join(get_args(Call))}")
        self._faults.append(_Fault(call, after, times, error))

    def recover(self) -> None:
        """Forget what :meth:`fail` was told and has not happened yet."""
        self._faults.clear()

    def enter(self, call: str) -> None:
        """Refuse a call on a closed device, or one that was made to fail."""
        super().enter(call)
        with self._lock:
            error = self._due(call)
        if error is not None:
            try:
                raise error
            finally:
                del error  # or the error would hold this frame, the frame the error, and both what led here

    def _due(self, call: str) -> Exception | None:
        for fault in [fault for fault in self._faults if fault.call == call]:
            if fault.after:
                fault.after -= 1
                continue
            fault.times -= 1
            if not fault.times:
                self._faults.remove(fault)
            return fault.error
        return None
