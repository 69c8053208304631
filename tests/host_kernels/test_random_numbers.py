"""Compiled random numbers of the CPU have the bits of NumPy's, which are those of every device."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.runtime.cpu.llvm import provider
from tests.support.host_launches import HostLaunches, poison_memory

pytestmark = pytest.mark.skipif(not provider.available(), reason="there is no compiler")

SHAPES = [(1,), (31,), (32,), (33,), (129, 7), (3, 5, 1000), ()]
STATES = [(1, 0), (2**63 + 5, 2**32 - 1), (3, 2**64 - 2), (2**64 - 1, 2**63)]


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> HostLaunches:
    return HostLaunches(monkeypatch)


@pytest.mark.parametrize("state", STATES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_dropout(shape: Any, state: tuple[int, int], launches: HostLaunches) -> None:
    x = dl.tensor(np.asarray(np.random.default_rng(1).standard_normal(shape), np.float32), device="cpu")
    for p in (0.3, 1.0):
        poison_memory(4 * x.numel())
        compiled, by_numpy = launches.both(partial(dl.ops.random_dropout, x, p, *state))
        np.testing.assert_array_equal(compiled, by_numpy)


@pytest.mark.parametrize("state", STATES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_uniform(shape: Any, state: tuple[int, int], launches: HostLaunches) -> None:
    def numbers() -> dl.Tensor:
        return dl.empty(shape, device="cpu").uniform_(-1, 2.5, generator=dl.Generator().at(state))

    compiled, by_numpy = launches.both(numbers)
    np.testing.assert_array_equal(compiled, by_numpy)


def test_each_call_draws_other_numbers(launches: HostLaunches) -> None:
    """Seeds and counters are no part of what plans are kept by."""
    x = dl.tensor(np.random.default_rng(2).random(1000, np.float32), device="cpu")
    first = dl.nn.functional.dropout(x).numpy()
    plans = len(dl.device("cpu").plans._plans)
    results = [dl.nn.functional.dropout(x).numpy().tobytes() for _ in range(5)]
    assert len({first.tobytes(), *results}) == 6
    assert launches.count == 6
    assert len(dl.device("cpu").plans._plans) == plans
