"""Steps are cut where changes begin and end, into few runs."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from dl4all.runtime.vulkan.recording import segments


def runs(changing: list[bool]) -> list[range]:
    """Where changes are."""
    edges = [0, *(i for i in range(1, len(changing)) if changing[i] != changing[i - 1]), len(changing)]
    return [range(*edge) for edge in itertools.pairwise(edges) if changing[edge[0] : edge[0] + 1] == [True]]


@pytest.mark.parametrize("seed", range(40))
def test_every_step_is_in_one_run(seed: int) -> None:
    random = np.random.default_rng(seed)
    changing = [bool(found) for found in random.random(random.integers(0, 60)) < random.random()]
    for most in (1, 2, 5, 100):
        found = segments(changing, most)
        assert [i for part in found for i in part] == list(range(len(changing)))
        changed = [part for part in found if any(changing[i] for i in part)]
        assert len(changed) == min(most, len(runs(changing)))
        if len(runs(changing)) <= most:
            assert changed == runs(changing)
        # what changes is at both edges of its run, and runs of a kind do not follow each other
        assert all(changing[part[0]] and changing[part[-1]] for part in changed)
        assert all((a in changed) != (b in changed) for a, b in itertools.pairwise(found))


def test_the_shortest_gaps_are_joined() -> None:
    changing = [i in {0, 4, 6, 20, 23} for i in range(30)]
    assert segments(changing, 3) == [
        range(1), range(1, 4), range(4, 7), range(7, 20), range(20, 24), range(24, 30)
    ]  # fmt: skip


def test_nothing_is_one_run() -> None:
    assert segments([], 4) == [range(0)]
