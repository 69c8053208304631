"""The ring of staging memory, over a stream that runs nothing before it is waited for."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from dl4all.allocator import staging
from dl4all.allocator.staging import Ring
from dl4all.runtime.cpu.backend import CpuBackend
from dl4all.runtime.cpu.recording import run
from dl4all.runtime.protocols import Copy, span


class LateEvent:
    """Comes when somebody waits for it, and brings all that was recorded before it."""

    def __init__(self, arrive: Callable[[], None]) -> None:
        self._arrive = arrive
        self._come = False

    def query(self) -> bool:
        return self._come

    def synchronize(self, timeout: float | None = None) -> bool:
        self._arrive()
        self._come = True
        return True


class LateStream:
    """Records copies, and runs them as late as it may."""

    def __init__(self) -> None:
        self.waiting: list[Copy] = []

    def copy(self, command: Copy) -> None:
        self.waiting.append(command)

    def record_event(self) -> LateEvent:
        count = len(self.waiting)
        mine = self.waiting[:count]

        def arrive() -> None:
            for command in mine:
                if command in self.waiting:
                    run(command)
                    self.waiting.remove(command)

        return LateEvent(arrive)


@pytest.fixture
def stream(monkeypatch: pytest.MonkeyPatch) -> LateStream:
    """With a ring of four small chunks."""
    monkeypatch.setattr(staging, "CHUNK", 1024)
    monkeypatch.setattr(staging, "ENOUGH", 512)
    return LateStream()


@pytest.mark.parametrize("nbytes", [100, 1024, 5000, 12_000])
def test_a_chunk_is_written_again_when_its_copies_have_run(stream: LateStream, nbytes: int) -> None:
    backend = CpuBackend()
    ring = Ring(backend, stream)  # type: ignore[arg-type]
    data = [np.random.default_rng(i).integers(0, 256, nbytes).astype(np.uint8) for i in range(5)]
    targets = [span(backend.allocate(nbytes)) for _ in data]
    for target, array in zip(targets, data, strict=True):
        ring.upload(target, array)
    stream.record_event().synchronize()
    for target, array in zip(targets, data, strict=True):
        np.testing.assert_array_equal(target.buffer.data, array)


@pytest.mark.parametrize("nbytes", [100, 1024, 5000, 12_000])
def test_downloads_wait_for_their_copies(stream: LateStream, nbytes: int) -> None:
    backend = CpuBackend()
    ring = Ring(backend, stream)  # type: ignore[arg-type]
    for seed in range(5):
        source = span(backend.allocate(nbytes))
        source.buffer.data[:] = np.random.default_rng(seed).integers(0, 256, nbytes)
        out = np.zeros(nbytes, np.uint8)
        ring.download(source, out)
        np.testing.assert_array_equal(out, source.buffer.data)
