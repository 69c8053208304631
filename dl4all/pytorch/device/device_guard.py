"""The answers of a backend in Python to PyTorch's extension: its device type, and whether it is there.

PyTorch asks for the type also while an error passes through its C++ code, from destructors, which must not
fail: a second error there ends the process. An exception that a hook of autograd has raised is still pending
in the interpreter at that moment, and would make any function fail that returns. So it is put aside, and
raised again where the backward pass ends.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import Any

import torch

_TYPE = torch._C._autograd.DeviceType.PrivateUse1
_raise_pending = ctypes.pythonapi.PyErr_Occurred  # ctypes raises what is pending when it has called
_raise_pending.restype = ctypes.c_void_p


class _Aside(threading.local):
    error: BaseException | None = None


_aside = _Aside()


class DeviceGuard(torch._C._acc.DeviceGuard):
    """Devices have one queue each, so there is nothing to switch; only the type is asked for."""

    def type_(self) -> Any:
        try:
            _raise_pending()
        except BaseException as error:  # noqa: BLE001 - it is raised again
            _aside.error = error
        return _TYPE


class Hooks(torch._C._acc.PrivateUse1Hooks):
    """Whether the backend is there."""

    def is_available(self) -> bool:
        return True

    def is_built(self) -> bool:
        return True

    def has_primary_context(self, dev_id: int) -> bool:
        return True


def with_error_put_aside(function: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Call a function of PyTorch's extension; raise what was put aside meanwhile in place of its error."""
    try:
        return function(*args, **options)
    except BaseException:
        error, _aside.error = _aside.error, None
        if error is None:
            raise
        raise error from None
