"""Staging memory that is lent and comes back, whatever happens in between."""

from __future__ import annotations

import gc
from typing import Any

import pytest

from dl4all.allocator import staging_pool
from dl4all.allocator.staging_pool import GRAIN, StagingPool
from dl4all.runtime.cpu.backend import CpuBackend


class SwitchedEvent:
    """Has come when it is told so."""

    def __init__(self) -> None:
        self.come = False

    def query(self) -> bool:
        return self.come

    def synchronize(self, timeout: float | None = None) -> bool:
        return self.come


class Counted(CpuBackend):
    """Notes the buffers that it makes, and those that are freed."""

    def __init__(self) -> None:
        super().__init__()
        self.made: list[Any] = []

    def allocate(self, nbytes: int, kind: Any = "device") -> Any:
        self.made.append(super().allocate(nbytes, kind))
        return self.made[-1]


@pytest.fixture
def backend() -> Counted:
    return Counted()


@pytest.fixture
def points() -> list[SwitchedEvent]:
    """The events that were recorded for buffers that came back without one."""
    return []


@pytest.fixture
def pool(backend: Counted, points: list[SwitchedEvent]) -> StagingPool:
    def record() -> list[Any]:
        points.append(SwitchedEvent())
        return points[-1:]

    return StagingPool(backend, record)


def test_a_buffer_is_lent_again_when_its_event_has_come(pool: StagingPool, backend: Counted) -> None:
    event = SwitchedEvent()
    first = pool.take(100)
    first.used_until(event)
    buffer = first.buffer
    del first
    other = pool.take(100)
    assert other.buffer is not buffer
    event.come = True
    assert pool.take(100).buffer is buffer
    assert len(backend.made) == 2


def test_a_buffer_without_an_event_waits_for_all_streams(
    pool: StagingPool, backend: Counted, points: list[SwitchedEvent]
) -> None:
    """Whoever had it was interrupted, maybe behind a copy that was recorded."""
    lost = pool.take(100)
    buffer = lost.buffer
    del lost
    assert pool.take(100).buffer is not buffer
    assert len(points) == 1
    points[0].come = True
    assert pool.take(100).buffer is buffer


def test_two_never_have_one_buffer(pool: StagingPool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where an exception came after it was lent, and before it was no longer counted as idle."""
    event = SwitchedEvent()
    event.come = True
    first = pool.take(100)
    first.used_until(event)
    del first
    pool.clear()
    first = pool.take(100)
    first.used_until(event)
    idle = list(pool._lent.values())
    pool._idle = idle  # as it would be
    assert pool.take(100).buffer is not first.buffer


def test_little_is_kept(pool: StagingPool, backend: Counted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging_pool, "KEPT_BYTES", 2 * GRAIN)
    event = SwitchedEvent()
    event.come = True
    taken = [pool.take(GRAIN) for _ in range(5)]
    for each in taken:
        each.used_until(event)
    freed = list[Any]()
    monkeypatch.setattr(type(backend.made[0]), "free", lambda buffer: freed.append(buffer))
    del taken, each
    gc.collect()
    pool.take(GRAIN)
    assert len(freed) == 3
    assert set(freed) < set(backend.made)
    pool.clear()
    assert len(freed) > 3
