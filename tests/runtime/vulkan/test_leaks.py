"""Making and freeing everything, thousands of times: nothing grows."""

from __future__ import annotations

import ctypes
import gc
from pathlib import Path

import numpy as np
import psutil
import pytest

from dl4all.runtime.protocols import Copy, Fill, span
from dl4all.runtime.vulkan.backend import VulkanBackend
from tests.conftest import need
from tests.runtime.vulkan.driver import install
from tests.runtime.vulkan.scene import N, after, module, play, step, words
from tests.support.subcases import FULL

TIMES = 10_000 if FULL else 1_000
SAMPLE = TIMES // 10
CYCLE = 100 if FULL else 25
MEGABYTE = 1 << 20
MOST_SUBMISSIONS = 4  # that one round of the test has under way


def kept() -> int:
    """Bytes of memory in use. Holes of the heap, which one compilation or another fills, are given back."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return int(psutil.Process().memory_info().rss)


@pytest.mark.vulkan
@pytest.mark.slow
@pytest.mark.parametrize("limits", ["", "minimum"])
def test_everything_thousands_of_times(limits: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    need("vulkan:0")
    monkeypatch.setenv("DL4ALL_LIMITS", limits)
    driver = install(monkeypatch)
    code = module(tmp_path)
    backend = VulkanBackend(0, zero_copy=False)
    stream, out = backend.stream, np.empty(N, np.uint32)

    def once(seed: int) -> None:
        program = backend.program(code, ())
        x, y = (span(backend.allocate(4 * N)) for _ in range(2))
        stream.upload(x, words(seed % 7).view(np.uint8))
        other = backend.new_stream()
        other.wait_event(stream.record_event())
        other.dispatch(step(program, x, y, seed))
        stream.wait_event(other.record_event())
        recording = backend.record([Copy(y, x), Fill(y, seed), step(program, x, y, 1)], [2])
        stream.replay(recording, {2: step(program, x, y, seed)})
        stream.download(y, out.view(np.uint8))
        np.testing.assert_array_equal(out, after(words(seed % 7), seed, seed))
        for owned in (recording, program, x.buffer, y.buffer):
            owned.free()
        other.close()

    sizes = []
    for i in range(TIMES):
        once(i)
        if i % SAMPLE == SAMPLE - 1:
            sizes.append(kept())
            if i == SAMPLE - 1:
                live = dict(driver.live)
    # There are as many fences as submissions ever ran at once, which is a matter of time: a few.
    now = dict(driver.live)
    assert now.pop("Fence", 0) <= live.pop("Fence", 0) + MOST_SUBMISSIONS
    assert now == live
    assert sizes[-1] - sizes[2] < 8 * MEGABYTE, sizes
    backend.close()
    assert driver.left == {}


@pytest.mark.vulkan
@pytest.mark.slow
def test_devices_that_come_and_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    need("vulkan:0")
    driver = install(monkeypatch)
    code = module(tmp_path)
    sizes = []
    for i in range(4 * CYCLE):
        backend = VulkanBackend(0)
        play(backend, code)
        backend.close()
        if i % CYCLE == CYCLE - 1:
            sizes.append(kept())
    assert driver.left == {}
    assert sizes[-1] - sizes[0] < 8 * MEGABYTE, sizes
