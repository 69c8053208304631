"""Settings of a process under PyTorch's names: threads and determinism."""

from __future__ import annotations

import os
import warnings

from dl4all.ops.core.limits import integer
from dl4all.runtime.cpu.llvm import provider
from dl4all.runtime.cpu.llvm.thread_pool import MOST_THREADS, wanted_threads

__all__ = [
    "are_deterministic_algorithms_enabled",
    "get_num_interop_threads",
    "get_num_threads",
    "is_deterministic_algorithms_warn_only_enabled",
    "set_flush_denormal",
    "set_num_interop_threads",
    "set_num_threads",
    "use_deterministic_algorithms",
]

_deterministic = {"mode": False, "warn_only": False}


def get_num_threads() -> int:
    """The number of threads that compute on the CPU: DL4ALL_THREADS, or the cores that this process may use.

    Example:
        >>> import dl4all as dl
        >>> dl.get_num_threads() >= 1
        True
    """
    return wanted_threads()


def set_num_threads(int: int) -> None:
    """Have so many threads compute on the CPU, from the first op on; later it only warns.

    Raises:
        ArgumentError: it is no int from 1 to 256.

    Example:
        >>> import dl4all as dl
        >>> dl.set_num_threads(dl.get_num_threads())
    """
    number = integer("set_num_threads", "the number of threads", int, least=1, most=MOST_THREADS)
    if provider.started() and number != wanted_threads():
        warnings.warn(
            f"[set_num_threads] {wanted_threads()} threads compute already; call it before the first op, or "
            "set DL4ALL_THREADS",
            UserWarning,
            stacklevel=2,
        )
        return
    os.environ["DL4ALL_THREADS"] = str(number)


def get_num_interop_threads() -> int:
    """1: ops run one after the other.

    Example:
        >>> import dl4all as dl
        >>> dl.get_num_interop_threads()
        1
    """
    return 1


def set_num_interop_threads(int: int) -> None:
    """Nothing: ops run one after the other.

    Example:
        >>> import dl4all as dl
        >>> dl.set_num_interop_threads(1)
    """


def set_flush_denormal(mode: bool) -> bool:
    """False: whether the smallest floats become 0 is up to the device.

    Example:
        >>> import dl4all as dl
        >>> dl.set_flush_denormal(False)
        False
    """
    return False


def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    """Ask for the same bits in every run, which ops of dl4all give anyway.

    Example:
        >>> import dl4all as dl
        >>> dl.use_deterministic_algorithms(True)
        >>> dl.are_deterministic_algorithms_enabled()
        True
        >>> dl.use_deterministic_algorithms(False)
    """
    _deterministic.update(mode=mode, warn_only=warn_only)


def are_deterministic_algorithms_enabled() -> bool:
    """Whether :func:`use_deterministic_algorithms` asked for them.

    Example:
        >>> import dl4all as dl
        >>> dl.are_deterministic_algorithms_enabled()
        False
    """
    return _deterministic["mode"]


def is_deterministic_algorithms_warn_only_enabled() -> bool:
    """The last argument `warn_only` of :func:`use_deterministic_algorithms`.

    Example:
        >>> import dl4all as dl
        >>> dl.is_deterministic_algorithms_warn_only_enabled()
        False
    """
    return _deterministic["warn_only"]
