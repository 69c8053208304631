"""Barriers where a command depends on an earlier one, and nowhere else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dl4all.runtime.vulkan.backend import VulkanBackend
from dl4all.runtime.vulkan.stream import BATCH
from tests.conformance.kernels import Kernels, poison, put, write_shaders
from tests.conftest import need

pytestmark = pytest.mark.vulkan
N = 64


class Counting:
    """The raw API, counting calls."""

    def __init__(self, lib: Any) -> None:
        self.lib = lib
        self.calls: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        self.calls[name] += 1
        return getattr(self.lib, name)


class Recorder:
    """Four buffers, and the number of calls since :meth:`start`."""

    def __init__(self, backend: VulkanBackend, folder: Path) -> None:
        self.kernels = Kernels(backend, folder)
        self.stream: Any = backend.stream
        self.a, self.b, self.c, self.d = (put(backend, np.arange(N, dtype=np.uint32)) for _ in range(4))
        self.stream._lib = Counting(self.stream._lib)
        self.step(self.a, self.b)  # builds the program
        self.start()

    def step(self, x: Any, y: Any) -> None:
        """A dispatch that reads x and writes y."""
        self.kernels.run("step", x, y, n=N, k=1)

    def start(self) -> None:
        """Forget what was read and written before."""
        self.stream.synchronize()
        self.stream._read.clear()
        self.stream._written.clear()
        self.stream._lib.calls.clear()

    def calls(self, name: str) -> int:
        """How often a function of the API was called."""
        count: int = self.stream._lib.calls[name]
        return count


@pytest.fixture
def recorder(tmp_path: Path) -> Iterator[Recorder]:
    """A device of its own, since the calls of others would count."""
    need("vulkan:0")
    write_shaders(tmp_path)
    backend = VulkanBackend(0)
    yield Recorder(backend, tmp_path)
    backend.close()


@pytest.mark.parametrize(
    ("pairs", "barriers"),
    [
        (["ab", "cd"], 0),  # nothing in common
        (["ab", "ac", "ad"], 0),  # reads in common
        (["ab", "bc"], 1),  # read after write
        (["ab", "ca"], 1),  # write after read
        (["ab", "cb"], 1),  # write after write
        (["ab", "cd", "bd"], 1),  # one barrier settles both
        (["ab", "bc", "ad"], 1),  # the barrier settled ab, and bc has nothing to do with ad
        (["ab", "bc", "da"], 1),  # a was read before the barrier
        (["ab", "bc", "cd"], 2),
        (["ab", "ba"] * 5, 9),
    ],
)
def test_barriers(recorder: Recorder, pairs: list[str], barriers: int) -> None:
    for pair in pairs:
        recorder.step(*(getattr(recorder, name) for name in pair))
    assert recorder.calls("vkCmdDispatch") == len(pairs)
    assert recorder.calls("vkCmdPipelineBarrier") == barriers


def test_timed_dispatches_run_alone(recorder: Recorder) -> None:
    """Even those that have nothing in common, or their times would overlap."""
    program = recorder.kernels.program("step")
    push = np.array([N, 1], np.uint32).tobytes()
    for pair in ([recorder.a, recorder.b], [recorder.c, recorder.d]):
        recorder.stream.dispatch(program, pair, (1, 1, 1), push, lambda *_: None)
    assert recorder.calls("vkCmdDispatch") == 2
    assert recorder.calls("vkCmdPipelineBarrier") == 2


def test_a_dependency_on_an_earlier_batch(recorder: Recorder) -> None:
    recorder.step(recorder.a, recorder.b)
    recorder.stream._submit()
    before = recorder.calls("vkCmdPipelineBarrier")  # the one that lets the host see results
    recorder.step(recorder.c, recorder.d)
    assert recorder.calls("vkCmdPipelineBarrier") == before
    recorder.step(recorder.b, recorder.c)
    assert recorder.calls("vkCmdPipelineBarrier") == before + 1


def test_commands_are_submitted_in_batches(recorder: Recorder) -> None:
    for _ in range(2 * BATCH):
        recorder.step(recorder.a, recorder.b)
    assert recorder.calls("vkQueueSubmit") == 2
    recorder.step(recorder.a, recorder.b)
    assert recorder.calls("vkQueueSubmit") == 2
    recorder.stream.synchronize()
    assert recorder.calls("vkQueueSubmit") == 3
    recorder.stream.synchronize()
    assert recorder.calls("vkQueueSubmit") == 3


def test_batches_are_used_again(recorder: Recorder) -> None:
    for _ in range(40 * BATCH):
        recorder.step(recorder.a, recorder.b)
    assert recorder.calls("vkQueueSubmit") == 40
    assert len(recorder.stream._batches) <= 4  # three run while one is recorded


@pytest.mark.parametrize("zero_copy", [True, False])
def test_staging_buffers_go_when_they_are_done(zero_copy: bool, tmp_path: Path) -> None:
    need("vulkan:0")
    write_shaders(tmp_path)
    backend = VulkanBackend(0, zero_copy=zero_copy)
    try:
        kernels = Kernels(backend, tmp_path)
        x, y = poison(backend, N), poison(backend, N)
        for _ in range(100):
            kernels.run("step", x, y, n=N, k=1)
            backend.stream.upload(x, np.zeros(4 * N, np.uint8))  # x is in use, so it is staged
            backend.stream.download(y, np.zeros(4 * N, np.uint8))
        kernels.run("step", x, y, n=N, k=1)
        backend.stream.upload(x, np.zeros(4 * N, np.uint8))
        assert backend.buffers > {x, y}
        backend.stream.synchronize()
        assert backend.buffers == {x, y}
    finally:
        backend.close()
