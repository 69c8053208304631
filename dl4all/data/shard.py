"""The rows that one of several processes gets of every batch of a loader."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dl4all.data.sampler import Key
from dl4all.distributed.process_group import world as groups
from dl4all.ops.core import limits

if TYPE_CHECKING:
    from dl4all.data.loader import DataLoader

ALIGNED = 4  # rows: random numbers of the batch come in fours


class RowShare(NamedTuple):
    """The part of a process in every batch."""

    rank: int
    world_size: int

    def rows(self, count: int) -> slice:
        """The rows of a batch with so many; one behind the other by rank, cut at multiples of 4.

        >>> [RowShare(rank, 3).rows(22) for rank in range(3)]
        [slice(0, 4, None), slice(4, 12, None), slice(12, 22, None)]
        """
        start, stop = (
            count * rank // (ALIGNED * self.world_size) * ALIGNED for rank in (self.rank, self.rank + 1)
        )
        return slice(start, count if self.rank + 1 == self.world_size else stop)


class Vacant(NamedTuple):
    """The indices of a batch without rows: of a sample that shows what rows are like."""

    sample: Any


def indices_of(part: RowShare | None, indices: Any) -> Any:
    """The indices of this process's samples among those of a batch."""
    if part is None:
        return indices
    listed = indices if isinstance(indices, np.ndarray) else list(indices)
    own = listed[part.rows(len(listed))]
    return own if len(own) or not len(listed) else Vacant(listed[:1])


def agreed(key: Key, part: RowShare | None) -> Key:
    """The key of an epoch's order: that of the first process, where several are at the same loader."""
    world = groups.world()
    if part is None or world is None or world.size() != part.world_size:
        return key
    first = world.agree("DataLoader.shard", "the beginning of an epoch", key)[0]
    return first[0], first[1]


class LoaderShard:
    """The rows of one process of every batch of a loader; made by :meth:`dl4all.data.DataLoader.shard`.

    It has the position of its loader.
    """

    def __init__(self, loader: DataLoader, rank: int, world_size: int) -> None:
        count = limits.integer("DataLoader.shard", "world_size", world_size, 1)
        self.loader = loader
        self.part = RowShare(limits.integer("DataLoader.shard", "rank", rank, 0, count - 1), count)

    def __iter__(self) -> Iterator[Any]:
        return self.loader._iterate(self.part)

    def __len__(self) -> int:
        return len(self.loader)

    def state_dict(self) -> dict[str, Any]:
        """The position in the batches of all processes, as the loader's own."""
        return self.loader.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a position; see :meth:`dl4all.data.DataLoader.load_state_dict`."""
        self.loader.load_state_dict(state)
