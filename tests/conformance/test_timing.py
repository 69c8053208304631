"""Dispatches that are asked when they ran."""

from __future__ import annotations

import struct
import time
from typing import Any

import numpy as np
import pytest

from dl4all.runtime.backend import Backend
from dl4all.runtime.vulkan.backend import VulkanBackend
from dl4all.runtime.vulkan.timestamps import Ticks
from tests.conformance.kernels import Kernels, get, put

N = 64
MANY = 97  # more than three batches, and not a multiple of one


@pytest.mark.parametrize("names", ["xy", "xyzu"], ids=["dependent", "independent"])
def test_each_is_told_once_and_none_overlaps_another(backend: Backend, kernels: Kernels, names: str) -> None:
    program = kernels.program("step")
    buffers = [put(backend, np.zeros(N, np.uint32)) for _ in names]
    told: list[tuple[int, float, float, str]] = []
    begun = time.perf_counter()
    for i in range(MANY):
        pair = (buffers * 2)[2 * i % len(buffers) :][:2][:: -1 if len(buffers) == 2 and i % 2 else 1]
        ran = lambda start, end, clock, i=i: told.append((i, start, end, clock))  # noqa: E731
        backend.stream.dispatch(program, pair, (1, 1, 1), struct.pack("<II", N, 1), ran)
    backend.stream.synchronize()
    ended = time.perf_counter()
    assert [i for i, *_ in told] == list(range(MANY))
    times = [moment for _, start, end, _ in told for moment in (start, end)]
    assert times == sorted(times)
    assert begun <= times[0]
    assert times[-1] <= ended
    assert len({clock for *_, clock in told}) == 1
    assert any(end > start for _, start, end, _ in told)


def test_what_is_timed_computes_the_same(backend: Backend, kernels: Kernels) -> None:
    """Timed and untimed ones mixed, with a copy in between."""
    program = kernels.program("step")
    x, y = put(backend, np.zeros(N, np.uint32)), put(backend, np.zeros(N, np.uint32))
    told: list[Any] = []
    expected = 0
    for i in range(MANY):
        ran = None if i % 3 else lambda *times: told.append(times)
        backend.stream.dispatch(program, [x, y], (1, 1, 1), struct.pack("<II", N, i), ran)
        expected = (expected * 3 + i) % 2**32
        if i == 50:
            backend.stream.upload(y, np.full(N, 7, np.uint32).view(np.uint8))
            expected = 7
        x, y = y, x
    assert (get(backend, x, N) == expected).all()
    backend.stream.synchronize()
    assert len(told) == len(range(0, MANY, 3))


def test_a_device_without_timestamps_is_timed_by_the_host(
    backend: Backend, kernels: Kernels, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not isinstance(backend, VulkanBackend):
        pytest.skip("only the vulkan backend reads timestamps")
    stream: Any = backend.stream
    monkeypatch.setattr(stream, "_ticks", Ticks(0, 0.0))
    x, y = put(backend, np.zeros(N, np.uint32)), put(backend, np.zeros(N, np.uint32))
    told: list[tuple[float, float, str]] = []
    for pair in ([x, y], [y, x]):
        stream.dispatch(
            kernels.program("step"), pair, (1, 1, 1), struct.pack("<II", N, 1), lambda *t: told.append(t)
        )
    assert [clock for *_, clock in told] == ["host", "host"]
    assert told[0][0] < told[0][1] < told[1][0] < told[1][1]
    assert (get(backend, x, N) == 4).all()
