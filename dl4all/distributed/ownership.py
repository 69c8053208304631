"""Parameters shared out among processes or servers, by their sizes."""

from __future__ import annotations

from collections.abc import Sequence


def owners(sizes: Sequence[int], count: int) -> list[int]:
    """The one that has each parameter: the largest first, each to whoever has the least so far.

    Graham, "Bounds on Multiprocessing Timing Anomalies", SIAM J. Appl. Math. 17:2 (1969).

    >>> owners([5, 1, 4, 2], 2)
    [0, 0, 1, 1]
    """
    loads, found = [0] * count, [0] * len(sizes)
    for number in sorted(range(len(sizes)), key=lambda n: (-sizes[n], n)):
        found[number] = min(range(count), key=lambda rank: (loads[rank], rank))
        loads[found[number]] += sizes[number]
    return found
