"""An exception at any line of the allocator, as Ctrl-C raises one: nothing is lost and nothing lent twice."""

from __future__ import annotations

import gc
import random

import pytest

from tests.allocator.test_properties import Program
from tests.attacks.injection import LINES, inject, points
from tests.support.fake_backend import MIB
from tests.support.subcases import FULL

STEPS = 70


def random_steps(seed: int) -> list[tuple[str, int]]:
    """Allocations of all kinds of sizes, and what is done with them."""
    chance = random.Random(seed)
    whats = chance.choices(
        ("allocate", "free", "use elsewhere", "run", "trim"), weights=(10, 6, 3, 1, 1), k=STEPS
    )
    sizes = (1000, 1000, 50_000, 50_000, 3000, 300_000, 2 * MIB, 2 * MIB, 20 * MIB, 260 * MIB)
    return [(what, chance.choice(sizes) if what == "allocate" else chance.randrange(2**16)) for what in whats]


@pytest.mark.parametrize("strategy", ["pool", "best_fit"])
def test_an_exception_at_each_line(strategy: str) -> None:
    steps, later = random_steps(1), random_steps(2)
    stride = 1 if FULL else 5
    found = points(lambda: Program(strategy).run(steps), LINES, ("allocator",))[::stride]
    assert len(found) > 150 // stride
    for point in found:
        program = Program(strategy)
        program.backend.interrupted = True
        outcome = inject(lambda program=program: program.run(steps), point, KeyboardInterrupt)  # type: ignore[misc]
        assert outcome in ("raised", "not reached"), (point, outcome)
        program.check()
        program.run(later)
        program.held.clear()
        gc.collect(0)
        program.check()
        program.synchronize()
        program.allocator.trim()
        assert program.allocator.stats.allocated == 0, point
        assert program.backend.taken == 0, point
