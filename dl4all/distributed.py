"""Answers to scripts that ask ``torch.distributed`` first: groups of processes are not here.

``dl.parallel`` and ``dl.pipeline`` use several devices within one process.
"""

from __future__ import annotations

from typing import Any, NoReturn

from dl4all.errors import DeviceError

__all__ = ["destroy_process_group", "init_process_group", "is_available", "is_initialized"]

ADVICE = "there are no groups of processes; use dl.parallel(model) for several devices in one process"


def is_available() -> bool:
    """False: use ``dl.parallel(model)`` for several devices.

    Example:
        >>> import dl4all as dl
        >>> dl.distributed.is_available()
        False
    """
    return False


def is_initialized() -> bool:
    """False.

    Example:
        >>> import dl4all as dl
        >>> dl.distributed.is_initialized()
        False
    """
    return False


def init_process_group(*args: Any, **kwargs: Any) -> NoReturn:
    """Refuse to start a group of processes; scripts that train in one process import this and do not call it.

    Raises:
        DeviceError: always.

    Example:
        >>> import dl4all as dl
        >>> dl.distributed.init_process_group("gloo")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
            ...
        dl4all.errors.DeviceError: [init_process_group] there are no groups of processes; ...
    """
    raise DeviceError(f"[init_process_group] {ADVICE}")


def destroy_process_group(group: Any = None) -> NoReturn:
    """Refuse to end a group of processes: none was started.

    Raises:
        DeviceError: always.

    Example:
        >>> import dl4all as dl
        >>> try:
        ...     dl.distributed.destroy_process_group()
        ... except dl.errors.DeviceError as error:
        ...     print("dl.parallel" in str(error))
        True
    """
    raise DeviceError(f"[destroy_process_group] {ADVICE}")
