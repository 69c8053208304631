"""A process group whose members come and go."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import NamedTuple, Protocol

from dl4all.distributed.process_group.group import ProcessGroup
from dl4all.distributed.process_group.transport import Transport
from dl4all.errors import ArgumentError, DistNetworkError
from dl4all.scheduler.monitor import publisher


class Quorum(NamedTuple):
    """The processes that compute a step together, as one of them is told of them."""

    number: int
    """Another one for each change."""
    rank: int
    world_size: int
    address: str
    """The address of the store by which they connect."""


class Lighthouse(Protocol):
    """A way to find out who is there."""

    def quorum(self, step: int, failures: int) -> Quorum:
        """Wait until all that are there have asked.

        Args:
            step: how far this process is.
            failures: how many tries of this step have failed here.

        Raises:
            DistNetworkError: the lighthouse does not answer.
        """

    def transport(self, quorum: Quorum, name: str) -> Transport:
        """Connect the processes of a quorum, for one of their uses of it."""

    def alone(self) -> Transport:
        """A transport of this process only."""

    def close(self) -> None:
        """Leave, which the others notice."""


class ElasticGroup(ProcessGroup):
    """Processes that compute together, each time those that are there.

    Before :meth:`meet` a process is alone. Where one ends, or a connection breaks, the collectives of all
    raise DistNetworkError, and the next :meth:`meet` connects those that are left, and who has come.

    Args:
        lighthouse: knows who is there.
        timeout: after which an answer is given up.
    """

    def __init__(self, lighthouse: Lighthouse, timeout: timedelta) -> None:
        super().__init__(lighthouse.alone(), "torchft", timeout, [0])
        self._lighthouse = lighthouse
        self.quorum: Quorum | None = None

    def ask(self, step: int, failures: int = 0) -> Quorum:
        """Wait for the others between two steps.

        Args:
            step: how many steps this process has made.
            failures: how many tries of the next step have failed in a row.

        Raises:
            DistNetworkError: the lighthouse does not answer.
        """
        return self._lighthouse.quorum(step, failures)

    def meet(self, quorum: Quorum) -> bool:
        """Connect to the others, if these are not the same as before; returns whether they are not.

        Raises:
            DistNetworkError: a process has ended meanwhile.
        """
        if self.quorum is not None and quorum.number == self.quorum.number:
            return False
        self.leave()
        try:
            for number, group in enumerate((self, *self._subgroups)):
                group.connect(self._lighthouse.transport(quorum, f"group {number}"))
        except Exception as error:
            self.leave()
            raise DistNetworkError(
                f"[ProcessGroup] {quorum.world_size} processes cannot be connected: {error}"
            ) from error
        self.quorum = quorum
        publisher.rank = f"{quorum.rank}/{quorum.world_size}"
        return True

    def leave(self) -> None:
        """Give up the connections, by which the others notice that this try of a step has failed."""
        self.quorum = None
        for group in (self, *self._subgroups):
            group.transport.close()
            group.connect(self._lighthouse.alone())

    def subgroup(self, name: str, ranks: Sequence[int], timeout: timedelta | None = None) -> ProcessGroup:
        raise ArgumentError(
            f"[{name}] the members of this group come and go: it has no groups of some of them"
        )

    def beside(self, name: str) -> ProcessGroup:
        if self.quorum is not None:
            raise ArgumentError(
                f"[{name}] an elastic launch trains one model, as processes that come would not know of "
                "another; use a launch for each"
            )
        made = ProcessGroup(self._lighthouse.alone(), self.backend, self.timeout, self.ranks)
        self._subgroups.append(made)
        return made

    def close(self) -> None:
        super().close()
        self._lighthouse.close()
