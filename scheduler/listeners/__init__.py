"""Listeners to what ops and devices do: captures, logs of launches, profiles, tools that show regions.

A listener hears of one thread, or of all. Mostly nobody listens, and a look at :data:`active` is all that
this costs then: whoever has something to tell, or may take a shorter way where nobody follows each step,
looks there first.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy.typing as npt

from dl4all.allocator.storage import Storage
from dl4all.runtime import fork
from dl4all.runtime.protocols import Dispatch
from dl4all.scheduler.push_constants import Again, Mark

if TYPE_CHECKING:
    from dl4all.scheduler.device.device import Device
    from dl4all.scheduler.device.programs import Launch


class Listener:
    """Callbacks in the thread that does something. These do nothing and prevent nothing."""

    __slots__ = ()

    replays: ClassVar[bool] = False
    """Whether something is made of the calls that does them again; measurements are none of them."""
    counts_ops: ClassVar[bool] = False
    """Whether it shows each op by itself."""

    def allocating(self, device: Device, nbytes: int, tag: str) -> Storage | None:
        """A device is to allocate; the result takes the place of memory."""
        return None

    def allocated(self, device: Device, storage: Storage, tag: str) -> None:
        """A device has allocated."""

    def launching(
        self, device: Device, launch: Launch, writes: Sequence[bool], storages: Sequence[Storage]
    ) -> bool:
        """A launch, checked, that is to run; True keeps it from running."""
        return False

    def launched(self, device: Device, command: Dispatch, storages: tuple[Storage, ...]) -> None:
        """A device has been given a launch."""

    def filling(self, device: Device, storage: Storage, word: int, first: int, count: int) -> bool:
        """Words of a storage are to be filled; True keeps them as they are."""
        return False

    def uploaded(self, device: Device, storage: Storage, array: npt.NDArray[Any]) -> None:
        """Contents have come from the host into new memory."""

    def host_call(
        self,
        device: Device,
        name: str,
        work: Callable[..., None],
        marks: Sequence[Mark],
        pieces: Sequence[tuple[Storage, int, int]],
        writes: Sequence[bool],
    ) -> bool:
        """The host is to run ``work(*memory)`` on pieces of storages, offset and size; True prevents it.

        `marks` are those of the varying numbers in the work, `writes` says which pieces it may write.
        """
        return False

    def read(self, device: Device) -> None:
        """The host reads elements of a tensor in the memory of the CPU."""

    def refused(self, what: str) -> None:
        """Something happens that a replay could not do; `what` is the end of a sentence on it."""

    def unplanned(self) -> None:
        """Something happens that launches alone would not repeat, or that may be another choice next time."""

    def op(self, op: Any, operands: list[Any], arguments: dict[str, Any], compute: Callable[[], Any]) -> Any:
        """An op computes; the result is what `compute` returns."""
        return compute()

    def kernel_function(
        self, name: str, operands: Sequence[Any], arguments: dict[str, Any], compute: Callable[[], Any]
    ) -> Any:
        """A function that is no op launches kernels; the result is what `compute` returns."""
        return compute()

    def vary(self, name: str, numbers: Sequence[Any], again: Again) -> Sequence[Any]:
        """Numbers that are others in the next call: the same, marked."""
        return numbers

    def depends(self, holds: Callable[[], bool]) -> None:
        """A condition under which all that happens is right."""

    def guard(self, storage: Storage, holds: Callable[[Storage], bool]) -> None:
        """Launches are right where ``holds(storage)``, for the operand that takes the place of `storage`."""

    def leaf_gradient(self, leaf: Any) -> None:
        """A leaf is to get a gradient."""

    def condition(self, tensor: Any, value: bool) -> None:
        """The host has read the one element of a tensor, and may do one thing or another by it."""
        self.refused("reads elements of a tensor on the host")

    def stays(self, storage: Storage) -> bool:
        """Whether the memory will be the same in the next call."""
        return True

    def index_check(self, number: int) -> int:
        """The number of a launch that notes indices out of range: the same, marked."""
        return number


EVERY_THREAD = 0  # is the number of none

active: dict[int, tuple[Listener, ...]] = {}
"""The listeners by the number of their thread, the first ones the oldest; empty while nobody listens."""

_lock = fork.lock()


def here() -> tuple[Listener, ...]:
    """The listeners to this thread."""
    return active.get(threading.get_ident(), ()) + active.get(EVERY_THREAD, ()) if active else ()


def followed() -> bool:
    """Whether somebody listens to this thread, and short ways are to be left."""
    return bool(active) and (threading.get_ident() in active or EVERY_THREAD in active)


def captured() -> bool:
    """Whether what this thread does is captured, to be done again."""
    return bool(active) and any(listener.replays for listener in here())


def profiled() -> bool:
    """Whether the ops of this thread are shown one by one."""
    return bool(active) and any(listener.counts_ops for listener in here())


def listen(listener: Listener, thread: int = EVERY_THREAD) -> None:
    """Add a listener, once."""
    with _lock:
        _set(thread, (*_without(listener, thread), listener))


def leave(listener: Listener, thread: int = EVERY_THREAD) -> None:
    """Remove a listener, if it is one."""
    with _lock:
        _set(thread, _without(listener, thread))


@contextlib.contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Within the ``with`` block a listener hears of this thread."""
    thread = threading.get_ident()
    try:
        listen(listener, thread)
        yield
    finally:
        leave(listener, thread)


@contextlib.contextmanager
def suspended() -> Iterator[None]:
    """Within the ``with`` block nothing of this thread is captured: measurements are no part of a call."""
    thread = threading.get_ident()
    before = active.get(thread, ())
    try:
        _set(thread, tuple(listener for listener in before if not listener.replays))
        yield
    finally:
        _set(thread, before)


def _without(listener: Listener, thread: int) -> tuple[Listener, ...]:
    return tuple(other for other in active.get(thread, ()) if other is not listener)


def _set(thread: int, listeners: tuple[Listener, ...]) -> None:
    if listeners:
        active[thread] = listeners
    else:
        active.pop(thread, None)


def _forget_other_threads() -> None:
    for thread in active.keys() - {threading.get_ident(), EVERY_THREAD}:
        del active[thread]


fork.in_child(_forget_other_threads)


# To all who listen to this thread


def refuse(what: str) -> None:
    """Tell that something happens that a replay could not do; `what` is the end of a sentence on it."""
    for listener in here() if active else ():
        listener.refused(what)


def read(device: Device) -> None:
    """Tell that the host reads elements of a tensor in the memory of the CPU."""
    for listener in here() if active else ():
        listener.read(device)


def leaf_gradient(leaf: Any) -> None:
    """Tell that a leaf is to get a gradient."""
    for listener in here() if active else ():
        listener.leaf_gradient(leaf)


def condition(tensor: Any) -> bool:
    """The one element of a tensor as a bool, by which the host may do one thing or another."""
    with suspended():
        value = bool(tensor.item())
    for listener in here() if active else ():
        listener.condition(tensor, value)
    return value


def stays(storage: Storage) -> bool:
    """Whether a storage is the same in the next call of what is captured, and not made or given anew."""
    return all(listener.stays(storage) for listener in here()) if active else True


def unplanned() -> None:
    """Tell that something happens that launches alone would not repeat."""
    for listener in here() if active else ():
        listener.unplanned()


def op(op: Any, operands: list[Any], arguments: dict[str, Any], compute: Callable[[], Any]) -> Any:
    """The result of `compute`, an op's, with all who listen around it."""
    for listener in here() if active else ():
        compute = functools.partial(listener.op, op, operands, arguments, compute)
    return compute()


def kernel_function(
    name: str, operands: Sequence[Any], arguments: dict[str, Any], compute: Callable[[], Any]
) -> Any:
    """The result of `compute`, a function's that is no op, with all who listen around it."""
    for listener in here() if active else ():
        compute = functools.partial(listener.kernel_function, name, operands, arguments, compute)
    return compute()


def vary(name: str, numbers: Sequence[Any], again: Again) -> Sequence[Any]:
    """Numbers that are others in the next call: the same, marked by those who replay it.

    Args:
        name: their source, for people.
        numbers: of this call.
        again: takes the host's part of a call again, and returns the numbers of that time.
    """
    for listener in here() if active else ():
        numbers = listener.vary(name, numbers, again)
    return numbers


def depends(holds: Callable[[], bool]) -> None:
    """Tell that what happens is right for as long as a condition holds."""
    for listener in here() if active else ():
        listener.depends(holds)
