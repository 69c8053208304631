"""Uploads, downloads, and what the pool of buffers may count on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dl4all.errors import OutOfMemoryError
from dl4all.runtime.backend import Backend
from tests.conformance.kernels import Kernels, get, put

SIZES = (1, 2, 3, 4, 5, 255, 256, 257, 1023, 4099, 65537, 1_000_003)


def random_bytes(count: int) -> Any:
    return np.random.default_rng(count).integers(0, 256, count, np.uint8)


@pytest.mark.parametrize("nbytes", SIZES)
def test_what_goes_up_comes_down(backend: Backend, nbytes: int) -> None:
    data = random_bytes(nbytes)
    buffer: Any = backend.allocate(nbytes)
    backend.stream.upload(buffer, data)
    out = np.zeros_like(data)
    backend.stream.download(buffer, out)
    assert buffer.nbytes >= nbytes
    np.testing.assert_array_equal(out, data)


@pytest.mark.parametrize("part", [1, 3, 256, 1000])
def test_a_download_may_ask_for_the_start_only(backend: Backend, part: int) -> None:
    data = random_bytes(1001)
    buffer = put(backend, data)
    out = np.zeros(part + 8, np.uint8)
    backend.stream.download(buffer, out[:part])
    np.testing.assert_array_equal(out[:part], data[:part])
    assert not out[part:].any()


@pytest.mark.parametrize("part", [1, 3, 256, 1000])
def test_an_upload_may_be_shorter_than_the_buffer(backend: Backend, part: int) -> None:
    buffer = put(backend, random_bytes(1001))
    data = random_bytes(part)
    backend.stream.upload(buffer, data)
    out = np.zeros_like(data)
    backend.stream.download(buffer, out)
    np.testing.assert_array_equal(out, data)


def test_the_source_of_an_upload_may_change_at_once(backend: Backend, kernels: Kernels) -> None:
    """Also where the copy is only recorded, because the buffer is in use."""
    buffers = [put(backend, np.zeros(64, np.uint32)) for _ in range(2)]
    data = np.arange(64, dtype=np.uint32)
    kernels.run("step", buffers[0], buffers[1], n=64, k=1)
    backend.stream.upload(buffers[0], data.view(np.uint8))
    data[:] = 0
    np.testing.assert_array_equal(get(backend, buffers[0], 64), np.arange(64))


def test_read_only_host_memory_can_be_uploaded(backend: Backend) -> None:
    data = random_bytes(64)
    data.flags.writeable = False
    out = np.zeros_like(data)
    backend.stream.download(put(backend, data), out)
    np.testing.assert_array_equal(out, data)


def test_buffers_do_not_overlap(backend: Backend) -> None:
    buffers = [put(backend, np.full(33, i, np.uint32)) for i in range(50)]
    for i, buffer in enumerate(buffers):
        np.testing.assert_array_equal(get(backend, buffer, 33), np.full(33, i))


@pytest.mark.parametrize("bits", [0, 33, 45, 62])
def test_more_memory_than_there_is(backend: Backend, bits: int) -> None:
    nbytes = 2**bits if bits else backend.info.limits.allocation_size + 1
    if nbytes <= min(backend.info.limits.allocation_size, backend.info.memory):
        pytest.skip(f"{backend.info.hardware} may have {nbytes} bytes")
    with pytest.raises(OutOfMemoryError, match=r"^\[(vulkan|kompute)\] .*smaller batch"):
        backend.allocate(nbytes)
    data = random_bytes(64)  # and it works on
    out = np.zeros_like(data)
    backend.stream.download(put(backend, data), out)
    np.testing.assert_array_equal(out, data)


def test_freed_buffers_are_forgotten(backend: Any, kernels: Kernels) -> None:
    """Programs meet ever new buffers, and some get the identity of one that was freed."""
    before = len(backend.buffers)
    for i in range(300):
        x, y = put(backend, np.full(64, i, np.uint32)), backend.allocate(256)
        kernels.run("step", x, y, n=64, k=i % 2)
        assert get(backend, y, 1)[0] == 3 * i + i % 2
        backend.stream.synchronize()
        x.free()
        y.free()
        y.free()  # a second time does nothing
    assert len(backend.buffers) == before
