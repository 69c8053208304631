"""Pieces of a grid: none too long, and together the whole."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import pytest

from dl4all.runtime.split_dispatch import cut


@pytest.mark.parametrize(
    "groups", [(1, 1, 1), (7, 1, 1), (1, 7, 1), (1, 1, 7), (3, 5, 2), (64, 2, 3), (11, 13, 1)]
)
@pytest.mark.parametrize("seconds", [0.0, 0.5, 1.0, 1.01, 2.0, 3.7, 12.0, 1e6])
def test_pieces(groups: tuple[int, int, int], seconds: float) -> None:
    pieces = cut(groups, seconds, 1.0)
    covered = Counter(
        workgroup
        for first, size in pieces
        for workgroup in itertools.product(*(range(a, a + n) for a, n in zip(first, size, strict=True)))
    )
    assert covered == Counter(itertools.product(*map(range, groups)))
    a_workgroup = seconds / math.prod(groups)
    for _, size in pieces:
        assert math.prod(size) * a_workgroup <= 1.0 or math.prod(size) == 1
    if seconds <= 1.0:
        assert len(pieces) == 1


def test_pieces_are_not_smaller_than_need_be() -> None:
    assert len(cut((1000, 1000, 1), 10.0, 1.0)) == 10
    assert len(cut((1000, 3, 1), 10.0, 1.0)) <= 15
