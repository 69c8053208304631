"""Numbers and data that a trainer shares with those of other processes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import numpy as np

from dl4all.data.shard import LoaderShard
from dl4all.distributed.membership import init_process_group
from dl4all.distributed.process_group import world as groups
from dl4all.distributed.process_group.group import ProcessGroup
from dl4all.errors import ArgumentError
from dl4all.ops.random.generator import GOLDEN, Generator, default_generator
from dl4all.training.totals import Totals

T = TypeVar("T")

NAME = "Trainer"


def joined_group() -> ProcessGroup:
    """The group of all processes, which is made where there is none."""
    if groups.world() is None:
        init_process_group()
    found = groups.world()
    assert found is not None
    return found


def by_first(group: ProcessGroup | None, function: Callable[[], T]) -> T:
    """Call a function in the first process; returns its value, or raises its error, in all of them."""
    return function() if group is None else group.by_first(NAME, function)


def shard_of(group: ProcessGroup | None, batches: Iterable[Any]) -> Iterable[Any]:
    """The rows of this process of every batch.

    Raises:
        ArgumentError: the batches cannot be shared.
    """
    if group is None or isinstance(batches, LoaderShard):
        return batches
    if not hasattr(batches, "shard"):
        raise ArgumentError(
            "[Trainer] distributed=True takes a dl.data.DataLoader of all processes' batches, whose rows it "
            f"shares, got {type(batches).__name__}"
        )
    shard: Iterable[Any] = batches.shard(group.rank(), group.size())
    return shard


def mean_of(group: ProcessGroup | None, mean: float, rows: int) -> float:
    """The mean over the rows of all processes, from those over each one's."""
    if group is None:
        return mean
    sums = np.array([mean * rows if rows else 0.0, rows])
    with np.errstate(all="ignore"):
        group.all_reduce(NAME, sums).wait()
    return float(sums[0] / max(sums[1], 1))


def share_of_rows(group: ProcessGroup, rows: int) -> float:
    """The part of the rows of a batch that this process has."""
    counts = [numbers[0] for numbers in group.agree(NAME, "a batch", [rows])]
    return rows / max(sum(counts), 1)


def merged(
    group: ProcessGroup | None, totals: Totals, metrics: Iterable[str], before: Totals | None = None
) -> Totals:
    """The sums of all processes, of the loss and these metrics, and what all had `before`."""
    if group is None:
        return totals
    names, state = ["loss", *metrics], totals.state_dict()
    numbers = np.array([state["samples"], *(state["sums"].get(name, 0.0) for name in names)], np.float64)
    group.all_reduce(NAME, numbers).wait()
    whole, known = Totals(), Totals() if before is None else before
    earlier = known.state_dict()["sums"]
    sums = {name: earlier.get(name, 0.0) + n for name, n in zip(names, numbers[1:].tolist(), strict=True)}
    samples = known.samples + int(numbers[0])
    whole.load_state_dict({"samples": samples, "batches": state["batches"], "sums": sums})
    return whole


def restart_from(group: ProcessGroup | None, totals: Totals) -> Totals:
    """The sums from which a process goes on: those of all are the first one's."""
    if group is None or group.rank() == 0:
        return totals
    own = Totals()
    own.load_state_dict({"samples": 0, "batches": totals.batches, "sums": {}})
    return own


def seed_for_batch(group: ProcessGroup, generator: Generator, epoch: int, batch: int) -> Generator:
    """Have a generator draw numbers of this process's own for a batch; returns it.

    Compiled gradients know nothing of rows: the numbers are not those of one process.
    """
    seed, _ = default_generator().get_state()
    generator.set_state((seed ^ (group.rank() + 1) * GOLDEN % 2**64, (epoch << 44 | batch << 24) % 2**64))
    return generator
