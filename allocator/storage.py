"""Memory on loan, given back when the last owner is gone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dl4all.allocator.allocation import Allocation
from dl4all.runtime.protocols import Span


class Storage:
    """`nbytes` bytes of device memory. Tensors that view the same memory share one storage.

    ``span`` is what a dispatch binds, which may be a little more, ``address`` where compiled code finds
    memory of the host. The allocator that made a storage notices when it is garbage; one that lies in
    another's memory keeps `whole`, that other one.
    """

    __slots__ = (
        "__weakref__",
        "_whole",
        "address",
        "allocation",
        "history_version",
        "named_cpu",
        "nbytes",
        "pending",
        "shown",
        "span",
        "version",
    )

    def __init__(
        self, span: Span, nbytes: int, allocation: Allocation | None = None, whole: Storage | None = None
    ) -> None:
        self.span = span
        self.address = 0 if allocation is None else allocation.address
        self.nbytes = nbytes
        self.version = 0  # counts changes in place, which gradients must know of
        self.history_version = 0  # counts those of them that gradients flow through
        self.shown = False  # to the host, which may change it without being counted
        self.named_cpu = False  # the CPU was named for it, so that it does not come along to a device
        # Waits for contents that are still on their way; True means that later uses have to wait, too.
        self.pending: Callable[[], bool | None] | None = None
        self.allocation = allocation
        if whole is not None:
            self._whole = whole

    @property
    def buffer(self) -> Any:
        """The buffer that ``span`` is a part of."""
        return self.span.buffer

    def settle(self) -> None:
        """Wait for contents that are still on their way.

        Raises:
            DeviceError: they cannot come any more.
        """
        pending = self.pending  # another thread may be here, too
        if pending is not None and pending() is not True:
            self.pending = None

    def used_on(self, stream: Any) -> None:
        """Commands of another stream than the one it was allocated for use it: it outlives them."""
        allocation = self.allocation
        if (
            allocation is not None
            and allocation.stream_pool is not None
            and stream is not allocation.stream_pool.stream
        ):
            allocation.users = {stream} if allocation.users is None else allocation.users | {stream}
