"""Memory of random sizes and lifetimes: what is reserved stays within a factor, and nothing is mixed up."""

from __future__ import annotations

import gc
import random
from collections.abc import Callable

import numpy as np
import pytest

import dl4all as dl
from dl4all.allocator.allocator import SPREAD
from dl4all.allocator.storage import Storage
from tests.conftest import need
from tests.support.fake_backend import MIB, make
from tests.support.subcases import FULL, each

STEPS = 20_000 if FULL else 1_500
MOST = 64 * MIB  # allocated at a time
PIECES = 2000  # at a time: drivers allow only 4096 buffers
BLOCK = 64 * MIB  # that may be reserved at once

Sizes = Callable[[random.Random, int], int]
Choice = Callable[[random.Random, int], int]
SIZES: dict[str, Sizes] = {
    "any order of magnitude": lambda numbers, step: int(2 ** numbers.uniform(2, 23)),
    "small": lambda numbers, step: numbers.randrange(1, 5000),
    "large": lambda numbers, step: numbers.randrange(MIB // 4, 8 * MIB),
    "two": lambda numbers, step: numbers.choice([1000, 3 * MIB]),
    "growing": lambda numbers, step: int(1000 * 3000 ** (step / STEPS)) + numbers.randrange(64),
    "shrinking": lambda numbers, step: int(3e6 / 3000 ** (step / STEPS)) + numbers.randrange(64),
}
FREED: dict[str, Choice] = {
    "any": lambda numbers, count: numbers.randrange(count),
    "the first": lambda numbers, count: 0,
    "the last": lambda numbers, count: count - 1,
    "rather the first": lambda numbers, count: min(count - 1, int(numbers.expovariate(1) * count / 8)),
}


@each("strategy, sizes, freed", [(s, n, f) for s in ("pool", "best_fit") for n in SIZES for f in FREED])
def test_at_most_four_times_the_peak_is_reserved(strategy: str, sizes: str, freed: str) -> None:
    """And one block, which is taken before anybody knows what for."""
    numbers = random.Random(3)
    _, allocator = make(strategy)
    live: list[Storage] = []
    used = peak = reserved = 0
    for step in range(STEPS):
        nbytes = SIZES[sizes](numbers, step)
        while live and (used + nbytes > MOST or len(live) == PIECES or numbers.random() < 0.3):
            storage = live.pop(FREED[freed](numbers, len(live)))
            used -= storage.nbytes
            del storage
        live.append(allocator.storage(nbytes))
        used += nbytes
        peak = max(peak, used)
        reserved = max(reserved, allocator.driver.reserved)
    assert allocator.stats.allocated == used
    assert reserved <= SPREAD * peak + BLOCK
    if sizes in ("small", "two"):
        assert reserved <= 1.5 * max(peak, 16 * MIB)
    live.clear()
    allocator.trim()
    assert allocator.stats.allocated == allocator.stats.reserved == 0


@pytest.mark.vulkan
@pytest.mark.parametrize("name", ["vulkan:0", pytest.param("kompute:0", marks=pytest.mark.full)])
def test_what_was_written_stays(name: str) -> None:
    """Each piece of memory is filled with a number of its own, and looked at before it goes."""
    need(name)
    device = dl.device(name)
    numbers = random.Random(4)
    live: list[tuple[Storage, int]] = []
    for step in range(STEPS // 3):
        if len(live) > 60 or (live and numbers.random() < 0.45):
            storage, word = live.pop(numbers.randrange(len(live)))
            out = np.empty(min(storage.nbytes // 4, 256), np.uint32)
            start = numbers.randrange(storage.nbytes // 4 - out.size + 1) * 4
            device.download(storage, out, start)
            assert (out == word).all(), (step, word)
        storage = device.allocate(4 * int(2 ** numbers.uniform(0, 18)))
        device.fill(storage, step + 1)
        live.append((storage, step + 1))
    live.clear()
    gc.collect()
