"""Memory that Kompute would not refuse, and buffers that a shader cannot bind."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from dl4all.errors import ArgumentError, DeviceError, OutOfMemoryError
from dl4all.runtime.kompute.backend import KomputeBackend
from dl4all.runtime.protocols import Copy, Fill, span
from dl4all.testing.conformance.support.kernels import Kernels, get, poison, put, words

pytestmark = pytest.mark.vulkan
N = 1000


def limit(backend: KomputeBackend, **limits: Any) -> None:
    """Let the device have less than it does."""
    backend.info = dataclasses.replace(
        backend.info, limits=dataclasses.replace(backend.info.limits, **limits)
    )


def test_memory_is_counted(backend: KomputeBackend) -> None:
    """Kompute goes on with a null handle when the driver refuses, so it must not be asked."""
    backend.info = dataclasses.replace(backend.info, memory=1 << 20)
    assert backend.memory() == (1 << 20, 1 << 20)
    first = backend.allocate(600_000)
    with pytest.raises(OutOfMemoryError, match=r"600064 of 1048576 bytes are taken"):
        backend.allocate(600_000)
    assert backend.memory() == ((1 << 20) - 600_064, 1 << 20)
    first.free()
    assert backend.allocate(600_000, "host").nbytes == 600_064
    with pytest.raises(OutOfMemoryError):
        backend.allocate(600_000)


def test_allocations_are_counted(backend: KomputeBackend) -> None:
    """A device buffer is two: its memory, and that of its staging buffer."""
    limit(backend, allocations=5)
    buffers = [backend.allocate(256), backend.allocate(256)]
    with pytest.raises(
        OutOfMemoryError, match=r"^\[kompute\] .* allows 5 allocations at a time, and 4 are in"
    ):
        backend.allocate(256)
    backend.allocate(256, "host")
    with pytest.raises(OutOfMemoryError):
        backend.allocate(256, "host")
    buffers[0].free()
    buffers[0].free()
    backend.allocate(256)


def test_an_upload_of_the_whole_buffer_is_one_submission(
    backend: KomputeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = poison(backend, 64)
    done: list[str] = []

    def evaluate(sequence: Any, what: str) -> None:
        done.append(what)
        sequence.eval()

    monkeypatch.setattr("dl4all.runtime.kompute.buffer.evaluate", evaluate)
    data = np.zeros(256, np.uint8)
    backend.stream.upload(span(x), data[:4])
    backend.stream.upload(span(x), data)
    assert done == ["uploading"] * 2
    backend.stream.upload(span(x, 0, 128), data[:128])
    assert done[2:] == ["downloading what lies around an upload", "uploading"]


def test_what_cannot_be_bound_goes_through_the_host(backend: KomputeBackend, kernels: Kernels) -> None:
    """Copies and fills know no limit; a dispatch says what it is."""
    x, y = put(backend, words(1, N)), put(backend, words(2, N))
    z = put(backend, words(3, N), "host")
    limit(backend, storage_buffer_range=256)
    commands: list[Copy | Fill] = [
        Copy(span(x, 0, 2000), span(y, 1000, 2000)),
        Fill(span(y, 1500, 500), 77),
        Copy(span(y, 1400, 1200), span(x, 4, 1200)),
        Copy(span(y, 0, 400), span(y, 2000, 400)),
        Copy(span(y, 1200, 800), span(z, 8, 800)),
    ]
    ours, theirs, hosts = words(1, N), words(2, N), words(3, N)
    recording = backend.record(commands)
    for recorded in (False, True):
        if recorded:
            backend.stream.replay(recording)
        else:
            for command in commands:
                run: Any = backend.stream.copy if isinstance(command, Copy) else backend.stream.fill
                run(command)
        theirs[250:750] = ours[:500]
        theirs[375:500] = 77
        ours[1:301] = theirs[350:650]
        theirs[500:600] = theirs[:100]
        hosts[2:202] = theirs[300:500]
        for buffer, expected in ((x, ours), (y, theirs), (z, hosts)):
            np.testing.assert_array_equal(get(backend, buffer, N), expected)
    with pytest.raises(
        ArgumentError, match=r"a buffer of 4096 bytes; Kompute binds whole .* device allows 256$"
    ):
        kernels.run("step", x, y, n=4, k=1)
    y.free()
    with pytest.raises(DeviceError, match="was freed"):
        backend.stream.replay(recording)


def test_a_closed_device_says_so(backend: KomputeBackend, kernels: Kernels) -> None:
    x, y = put(backend, words(0, N)), put(backend, words(0, N), "host")
    kernels.run("step", x, y, n=N, k=1)
    command = kernels.command("step", x, y, n=N, k=1)
    module, recording, extra = kernels.module("step"), backend.record([command]), backend.new_stream()
    data, event = np.zeros(4, np.uint8), backend.stream.record_event()
    backend.close()
    backend.close()
    uses: list[Callable[[], Any]] = [
        lambda: backend.allocate(256),
        lambda: backend.program(module, ()),
        lambda: backend.record([command]),
        backend.new_stream,
        backend.memory,
    ]
    for stream in (backend.stream, extra):
        uses += [
            partial(stream.dispatch, command),
            partial(stream.copy, Copy(span(x), span(y))),
            partial(stream.fill, Fill(span(x))),
            partial(stream.upload, span(x), data),
            partial(stream.download, span(x), data),
            partial(stream.replay, recording, {0: command}),
            partial(stream.wait_event, event),
            stream.record_event,
            stream.synchronize,
        ]
    for use in uses:
        with pytest.raises(DeviceError, match=r"^\[kompute\] .* is closed; what was on it is gone$"):
            use()
    for left in (backend.buffers, backend.programs, backend.recordings, backend.streams):
        assert not left
    assert (backend.allocated, backend.allocations) == (0, 0)
    for thing in (x, y, recording, command.program):  # what outlives its device does no harm
        thing.free()
    extra.close()
    assert event.query()
