"""Long work in pieces: a driver gives up a device that one submission keeps busy for seconds."""

from __future__ import annotations

import itertools
import math

from dl4all.runtime.protocols import Grid


def cut(groups: Grid, seconds: float, bound: float) -> list[tuple[Grid, Grid]]:
    """A grid of workgroups as pieces that take at most `bound` seconds each, as (first workgroup, size).

    Cut is the outermost side first, so that a piece's workgroups are as near to each other as before.

    >>> cut((4, 6, 1), 3.0, 1.0)
    [((0, 0, 0), (4, 2, 1)), ((0, 2, 0), (4, 2, 1)), ((0, 4, 0), (4, 2, 1))]
    """
    steps = []
    for side in reversed(groups):
        slice_seconds = seconds / max(side, 1)
        most = side if seconds <= bound else math.floor(bound / slice_seconds)
        pieces = math.ceil(side / max(most, 1))
        steps.append(math.ceil(side / max(pieces, 1)) or 1)  # pieces of like size
        seconds = slice_seconds * steps[-1]
    z, y, x = (
        [(first, min(step, side - first)) for first in range(0, side, step)]
        for side, step in zip(reversed(groups), steps, strict=True)
    )
    return [((i[0], j[0], k[0]), (i[1], j[1], k[1])) for k, j, i in itertools.product(z, y, x)]
