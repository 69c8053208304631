"""Commands take effect as if one after the other, whatever the backend does behind that.

A software driver keeps them in order without any barrier, so a missing one shows there only under Vulkan's
validation layers, which check synchronization.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from dl4all.runtime.protocols import span
from dl4all.testing.conformance.harness import Bench
from dl4all.testing.conformance.support.kernels import bytes_of, step, words
from dl4all.testing.conformance.support.oracle import MemoryPiece, Model, OracleStep

pytestmark = pytest.mark.usefixtures("data")
N = 1000
CHAIN = 300  # several batches of a stream that batches


# Chains


@pytest.mark.usefixtures("programs")
class TestChains:
    """Hundreds of dispatches that depend on each other."""

    def test_read_after_write_in_ping_pong(self, bench: Bench) -> None:
        expected = words(0, N)
        x, y = bench.put(expected), bench.poison(N)
        for i in range(CHAIN):
            bench.run("rotate", x, y, n=N, k=1 + 64 * (i % 3))
            expected = np.roll(expected, 1 + 64 * (i % 3))
            x, y = y, x
        bench.expect(x, expected)

    def test_in_place(self, bench: Bench) -> None:
        expected = words(1, N)
        x = bench.put(expected)
        for i in range(CHAIN):
            bench.run("step_in_place", x, n=N, k=i % 3)
            expected = step(expected, i % 3)
        bench.expect(x, expected)

    def test_write_after_read(self, bench: Bench) -> None:
        """Each result reads x before the next command overwrites it."""
        x, other = bench.put(words(2, N)), bench.put(words(3, N))
        results = [bench.poison(N) for _ in range(60)]
        for i, result in enumerate(results):
            bench.run("step", x, result, n=N, k=1)
            bench.run("rotate", other, x, n=N, k=1 + i % 4)
        expected = step(words(2, N), 1)
        for i, result in enumerate(results):
            bench.expect(result, expected)
            expected = step(np.roll(words(3, N), 1 + i % 4), 1)

    def test_write_after_write(self, bench: Bench) -> None:
        sources = [bench.put(words(seed, N)) for seed in range(4)]
        y = bench.poison(N)
        for i in range(CHAIN):
            bench.run("rotate", sources[i % 4], y, n=N, k=1 + i % 3)
        last = CHAIN - 1
        bench.expect(y, np.roll(words(last % 4, N), 1 + last % 3))

    @pytest.mark.parametrize("before", [0, 1, 30, 31, 32, 33, 63, 64, 130])
    def test_upload_to_what_a_pending_command_reads(self, bench: Bench, before: int) -> None:
        """Wherever in a batch it comes."""
        x, y, z = bench.put(words(4, N)), bench.poison(N), bench.put(words(5, N))
        expected = words(5, N)
        for i in range(before):
            bench.run("step_in_place", z, n=N, k=i % 3)
            expected = step(expected, i % 3)
        bench.run("step", x, y, n=N, k=1)
        bench.stream.upload(span(x), bytes_of(words(6, N)))
        bench.expect(y, step(words(4, N), 1))
        bench.expect(x, words(6, N))
        bench.expect(z, expected)

    def test_upload_to_what_a_pending_command_writes(self, bench: Bench) -> None:
        x, y = bench.put(words(7, N)), bench.poison(N)
        bench.run("step", x, y, n=N, k=1)
        bench.stream.upload(span(y), bytes_of(words(8, N)))
        bench.expect(y, words(8, N))

    def test_many_uploads_to_one_buffer(self, bench: Bench) -> None:
        x = bench.poison(N)
        results = [bench.poison(N) for _ in range(100)]
        for seed, result in enumerate(results):
            bench.stream.upload(span(x), bytes_of(words(seed, N)))
            bench.run("step", x, result, n=N, k=1)
        for seed, result in enumerate(results):
            bench.expect(result, step(words(seed, N), 1))

    def test_downloads_between_commands(self, bench: Bench) -> None:
        expected = words(9, N)
        x = bench.put(expected)
        for i in range(100):
            bench.run("step_in_place", x, n=N, k=i % 3)
            expected = step(expected, i % 3)
            if i % 7 == 0:
                bench.expect(x, expected)

    def test_large_and_small_commands_in_turn(self, bench: Bench) -> None:
        """A long command must be over before a short one reads what it wrote last."""
        count = 1 << 18
        large = words(10, count)
        x, y, z = bench.put(large), bench.poison(count), bench.poison(count)
        for _ in range(5):
            bench.run("rotate", x, y, n=count, k=1)
            bench.run("step", y, z, n=64, k=1)
            bench.run("step_in_place", x, n=64, k=2)
            large_y = np.roll(large, 1)
            large[:64] = step(large[:64], 2)
        bench.expect(z, step(large_y[:64], 1))
        bench.expect(x, large)

    def test_buffers_that_come_and_go(self, bench: Bench) -> None:
        """Programs meet ever new buffers, and some get the identity of one that was freed."""
        for i in range(300):
            x, y = bench.backend.allocate(256), bench.backend.allocate(256)
            bench.stream.upload(span(x), bytes_of(words(i, 64)))
            bench.run("step", x, y, n=64, k=i % 2)
            bench.expect(y, step(words(i, 64), i % 2))
            bench.stream.synchronize()
            x.free()
            y.free()


# Pairs: one command, then another that meets it in the same buffer

WRITERS = ("step", "copy", "fill", "upload")
READERS = ("step", "copy", "download")
# Two pieces of the buffer, in units: the same, one within the other, a common edge, apart.
MEETINGS = {"same": (2, 4, 2, 4), "within": (1, 6, 3, 4), "partly": (1, 4, 3, 6), "apart": (0, 3, 4, 7)}
SHARED, FIRST, SECOND = 0, 2, 3  # buffers: the one in common, and one more for each command


def pair_of(
    order: str, kinds: tuple[str, str], sides: tuple[int, ...], unit: int, k: int
) -> list[OracleStep]:
    """Two steps on buffer 0: `order` says whether each reads (r) or writes (w) it."""
    pieces = (
        MemoryPiece(SHARED, sides[0] * unit, sides[1] * unit),
        MemoryPiece(SHARED, sides[2] * unit, sides[3] * unit),
    )
    steps: list[OracleStep] = []
    for access, kind, piece, other in zip(order, kinds, pieces, (FIRST, SECOND), strict=True):
        if kind in ("fill", "upload", "download"):
            own: tuple[MemoryPiece, ...] = (piece,)
        else:
            aside = MemoryPiece(other, 0, piece.length)
            own = (piece, aside) if access == "r" else (aside, piece)
        steps.append(OracleStep(kind, own, k + len(steps)))
    return steps


PAIRS = [
    *(("wr", *kinds) for kinds in itertools.product(WRITERS, READERS)),
    *(("rw", *kinds) for kinds in itertools.product(READERS, WRITERS)),
    *(("ww", *kinds) for kinds in itertools.product(WRITERS, WRITERS)),
]


@pytest.mark.parametrize(("order", "first", "second"), PAIRS)
def test_pairs_of_commands(bench: Bench, order: str, first: str, second: str) -> None:
    """Many times in a row, so that the next pair meets this one too."""
    if "step" in (first, second) and not bench.capabilities.programs:
        pytest.skip("no programs run here")
    whole = "step" in (first, second) and not bench.unit
    unit = bench.unit or 64
    unit *= -(-100 // unit)
    model = Model(bench, 1, 4, 8 * unit)
    for sides in [(0, 8, 0, 8)] if whole else MEETINGS.values():
        for k in range(0, 10, 2):
            for todo in pair_of(order, (first, second), sides, unit, k):
                model.run(todo)
        model.check(str(sides))
