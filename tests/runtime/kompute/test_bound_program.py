"""What is kept between dispatches, and that nobody runs what another lets go."""

from __future__ import annotations

import gc
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from dl4all.errors import ArgumentError, DeviceError, DeviceLostError, OutOfMemoryError
from dl4all.runtime.kompute import bound_program
from dl4all.runtime.kompute.backend import KomputeBackend
from dl4all.runtime.kompute.library import typed
from dl4all.runtime.protocols import Copy, Dispatch, Fill, span
from dl4all.testing.conformance.support.kernels import Kernels, get, poison, pushed, put, step, words

pytestmark = pytest.mark.vulkan
N = 1000


def test_the_oldest_launches_go_first(
    backend: KomputeBackend, kernels: Kernels, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bound_program, "KEPT", 3)
    buffers = [put(backend, words(seed, N)) for seed in range(5)]
    for i in range(40):
        kernels.run("step_in_place", buffers[i % 5], n=N, k=i)
        assert len(backend.launches) == min(i + 1, 3)
    assert [len(buffer.users) for buffer in buffers] == [0, 0, 1, 1, 1]
    for seed, buffer in enumerate(buffers):
        expected = words(seed, N)
        for i in range(seed, 40, 5):
            expected = step(expected, i)
        np.testing.assert_array_equal(get(backend, buffer, N), expected)
        buffer.free()
    assert not len(backend.launches)  # none may run on freed memory
    assert not kernels.program("step_in_place").users  # type: ignore[attr-defined]


def test_other_push_constants_are_the_same_launch(backend: KomputeBackend, kernels: Kernels) -> None:
    x, expected = put(backend, words(0, N)), words(0, N)
    for k in [*range(2 * bound_program.SEQUENCES), *range(2 * bound_program.SEQUENCES)]:
        kernels.run("step_in_place", x, n=N, k=k)
        expected = step(expected, k)
    assert len(backend.launches) == 1
    np.testing.assert_array_equal(get(backend, x, N), expected)


def test_threads_that_push_each_other_out(
    backend: KomputeBackend, kernels: Kernels, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With room for two launches and four threads that need three each."""
    monkeypatch.setattr(bound_program, "KEPT", 2)
    monkeypatch.setattr(bound_program, "SEQUENCES", 1)
    for name in ("step", "step_in_place"):
        kernels.program(name)

    def work(seed: int) -> Any:
        stream, expected = backend.new_stream(), words(seed, N)
        x, y = (backend.allocate(4 * N) for _ in range(2))
        stream.upload(span(x), words(seed, N).view(np.uint8))
        for i in range(150):
            stream.dispatch(kernels.command("step", x, y, n=N, k=i))
            stream.dispatch(kernels.command("step_in_place", y, n=N, k=i))
            stream.copy(Copy(span(y), span(x)))
            expected = step(step(expected, i), i)
        np.testing.assert_array_equal(get(backend, x, N, stream), expected)
        x.free()
        y.free()
        stream.close()

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(work, range(4)))
    finally:
        sys.setswitchinterval(interval)
    assert not backend.buffers
    assert not len(backend.launches)
    assert backend.streams == {backend.stream}


def test_nothing_waits_for_the_garbage_collector(backend: KomputeBackend, kernels: Kernels) -> None:
    """Its pipelines would pile up, and be destroyed in whatever thread it runs in."""
    gc.collect()
    gc.disable()
    try:
        before = len(gc.get_objects())
        for i in range(100):
            x = poison(backend, 64)
            kernels.run("step_in_place", x, n=64, k=i)
            recording = backend.record([kernels.command("step_in_place", x, n=64, k=i), Fill(span(x), i)])
            backend.stream.replay(recording)
            recording.free()
            x.free()
        del x, recording
        assert gc.collect() < 50
        assert len(gc.get_objects()) - before < 500
    finally:
        gc.enable()


def test_spans_behind_the_start_are_refused(backend: KomputeBackend, kernels: Kernels) -> None:
    """Also where the same buffers are known."""
    x, y = put(backend, words(0, N)), poison(backend, N)
    kernels.run("step", x, y, n=N, k=1)
    for spans in ([span(x, 256), span(y)], [span(x), span(y, 256)]):
        command = Dispatch(kernels.program("step"), spans, (1, 1, 1), pushed(N, 1))
        with pytest.raises(
            ArgumentError, match=r"^\[kompute\] step.comp is given a span from byte 256 on; Kom"
        ):
            backend.stream.dispatch(command)
        with pytest.raises(ArgumentError, match=r"binds whole buffers only, so copy it to one of its own$"):
            backend.record([command])
    assert backend.capabilities.offset_alignment == 0
    command = Dispatch(kernels.program("step"), [span(x, 0, 256), span(y, 0, 256)], (1, 1, 1), pushed(64, 7))
    backend.stream.dispatch(command)  # shorter than the buffer, which is bound whole
    np.testing.assert_array_equal(get(backend, y, 64), step(words(0, N)[:64], 7))


def test_a_stream_that_was_closed(backend: KomputeBackend) -> None:
    x, stream = poison(backend, N), backend.new_stream()
    stream.close()
    stream.close()
    with pytest.raises(DeviceError, match=r"^\[kompute\] the stream is closed$"):
        stream.fill(Fill(span(x), 1))
    backend.stream.fill(Fill(span(x), 1))
    assert (get(backend, x, N) == 1).all()


@pytest.mark.parametrize(
    ("said", "error"),
    [
        ("vk::Device::waitForFences: ErrorDeviceLost", DeviceLostError),
        ("vk::Device::allocateMemory: ErrorOutOfDeviceMemory", OutOfMemoryError),
        ("vk::Device::mapMemory: ErrorOutOfHostMemory", OutOfMemoryError),
        ("anything else", DeviceError),
    ],
)
def test_what_kompute_says_is_typed(said: str, error: type[DeviceError]) -> None:
    found = typed(RuntimeError(said), "trying")
    assert type(found) is error
    assert str(found).startswith("[kompute] trying: ")
    assert typed(found, "again") is found
