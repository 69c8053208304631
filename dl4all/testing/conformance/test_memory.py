"""Buffers: their sizes and kinds, how much is left, and pieces of them."""

from __future__ import annotations

import time

import numpy as np
import pytest

from dl4all.errors import ArgumentError, Dl4allError, OutOfMemoryError
from dl4all.runtime.protocols import Fill, MemoryKind, span
from dl4all.testing.conformance.harness import Bench
from dl4all.testing.conformance.support.kernels import bytes_of, step, words

KINDS: tuple[MemoryKind, ...] = ("device", "host")
SIZES = (1, 2, 3, 4, 5, 255, 256, 257, 1023, 4099, 65537, 1_000_003)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("nbytes", SIZES)
def test_a_buffer_has_at_least_the_size_asked_for(bench: Bench, nbytes: int, kind: MemoryKind) -> None:
    buffer = bench.allocate(nbytes, kind)
    assert nbytes <= buffer.nbytes < nbytes + 4096
    if buffer.mapped is not None:
        assert buffer.mapped.dtype == np.uint8
        assert buffer.mapped.size >= nbytes


def test_buffers_can_be_freed_twice(bench: Bench) -> None:
    buffer = bench.allocate(1000)
    bench.stream.synchronize()
    buffer.free()
    buffer.free()


@pytest.mark.usefixtures("data")
def test_buffers_do_not_overlap(bench: Bench) -> None:
    contents = [words(seed, 33) for seed in range(50)]
    buffers = [bench.put(content) for content in contents]
    for buffer, content in zip(buffers, contents, strict=True):
        bench.expect(buffer, content)


# Kinds


@pytest.mark.usefixtures("data")
def test_memory_that_the_host_sees(bench: Bench) -> None:
    """The device's writes are there after a wait; the host's writes, for the next command."""
    sent, other = words(1, 1009), words(2, 1009)
    buffer = bench.put(sent, "host")
    bench.stream.synchronize()
    assert buffer.mapped is not None
    np.testing.assert_array_equal(buffer.mapped[: sent.nbytes], bytes_of(sent))
    buffer.mapped[: other.nbytes] = bytes_of(other)
    bench.expect(buffer, other)


@pytest.mark.usefixtures("programs", "data")
def test_a_program_reads_what_the_host_wrote(bench: Bench) -> None:
    x, y = bench.allocate(4 * 1009, "host"), bench.poison(1009)
    for seed in range(5):
        x.mapped[: 4 * 1009] = bytes_of(words(seed, 1009))
        bench.run("step", x, y, n=1009, k=seed)
        bench.stream.synchronize()
        bench.expect(y, step(words(seed, 1009), seed))


@pytest.mark.usefixtures("programs", "data")
@pytest.mark.parametrize("wait", ["stream", "event"])
def test_the_host_reads_what_a_program_wrote(bench: Bench, wait: str) -> None:
    x, y = bench.put(words(3, 1009)), bench.allocate(4 * 1009, "host")
    y.mapped[:] = 0xFF
    expected = words(3, 1009)
    for k in range(5):
        bench.run("step", x, y, n=1009, k=k)
        bench.run("step", y, x, n=1009, k=k)
        if wait == "stream":
            bench.stream.synchronize()
        else:
            assert bench.stream.record_event().synchronize()
        expected = step(expected, k)
        np.testing.assert_array_equal(y.mapped[: 4 * 1009].view(np.uint32), expected)
        expected = step(expected, k)
    bench.expect(x, expected)


@pytest.mark.usefixtures("data")
def test_mapped_memory_of_any_kind_is_the_buffers(bench: Bench) -> None:
    """Also where ``device`` memory is mapped."""
    sent = words(4, 257)
    buffer = bench.put(sent)
    bench.stream.synchronize()
    if buffer.mapped is None:
        pytest.skip("the host does not see device memory here")
    np.testing.assert_array_equal(buffer.mapped[: sent.nbytes], bytes_of(sent))
    buffer.mapped[:4] = (1, 2, 3, 4)
    np.testing.assert_array_equal(bench.get(buffer, 1), [0x04030201])


def test_no_other_kind(bench: Bench) -> None:
    with pytest.raises(ArgumentError):
        bench.allocate(256, "attic")  # type: ignore[arg-type]


# How much there is


def test_memory_is_counted(bench: Bench) -> None:
    """The memory of a buffer is missing, as soon as the system has counted it."""
    missed, deadline, held = False, time.monotonic() + 20.0, []
    while not missed and time.monotonic() < deadline:  # other processes take and give memory meanwhile
        before = bench.backend.memory()
        buffer = bench.allocate(1 << 27)
        held.append(buffer)  # a process may have kept what it freed before, but not for all of them
        bench.stream.fill(Fill(span(buffer), 1))  # a system counts pages once they are touched
        bench.stream.synchronize()
        for _ in range(20):
            during = bench.backend.memory()
            assert 0 <= during.free <= during.total == before.total
            missed = missed or before.free - during.free > 1 << 25
            time.sleep(0 if missed else 0.02)
        if missed or len(held) == 8:
            while held:
                held.pop().free()
    assert missed, "the memory of a buffer is not missed"


def test_freed_memory_comes_back(bench: Bench) -> None:
    before = bench.backend.memory().free
    for _ in range(64):
        bench.backend.allocate(1 << 24).free()
    assert before - bench.backend.memory().free < 1 << 29


@pytest.mark.parametrize("bits", [0, 33, 45, 62])
def test_more_memory_than_there_is(bench: Bench, bits: int) -> None:
    limits = bench.backend.info.limits
    nbytes = 2**bits if bits else limits.allocation_size + 1
    if nbytes <= min(limits.allocation_size, bench.backend.info.memory):
        pytest.skip(f"{bench.backend.info.hardware} may have {nbytes} bytes")
    with pytest.raises(OutOfMemoryError, match=r"^\[\w+\] "):
        bench.backend.allocate(nbytes)
    if bench.capabilities.data:
        bench.expect(bench.put(words(5, 64)), words(5, 64))  # and it works on


# Spans


@pytest.mark.parametrize(
    ("offset", "nbytes"),
    [(-4, 8), (-4, None), (4, 4096), (4100, None), (0, -4), (1, 4), (2, None), (0, 5), (4, 3), (10**12, 4)],
)
def test_spans_that_do_not_fit(bench: Bench, offset: int, nbytes: int | None) -> None:
    buffer = bench.allocate(4096)
    with pytest.raises(ArgumentError, match=r"^\[span\] "):
        span(buffer, offset, nbytes)


def test_spans_that_fit(bench: Bench) -> None:
    buffer = bench.allocate(4096)
    assert span(buffer) == (buffer, 0, buffer.nbytes)
    assert span(buffer, 8) == (buffer, 8, buffer.nbytes - 8)
    assert span(buffer, buffer.nbytes) == (buffer, buffer.nbytes, 0)
    assert span(buffer, 4, 12) == (buffer, 4, 12)


def test_transfers_that_do_not_fit(bench: Bench) -> None:
    """More than the span has is refused, though the buffer has it."""
    buffer = bench.allocate(4096)
    data = np.full(9, 7, np.uint8)
    with pytest.raises(Dl4allError):
        bench.stream.upload(span(buffer, 16, 8), data)
    with pytest.raises(Dl4allError):
        bench.stream.download(span(buffer, 16, 8), data)
    assert (data == 7).all()


def test_empty_transfers_do_nothing(bench: Bench) -> None:
    buffer = bench.allocate(4096)
    bench.stream.upload(span(buffer, 16, 8), np.empty(0, np.uint8))
    bench.stream.download(span(buffer, 16, 8), np.empty(0, np.uint8))
    bench.stream.upload(span(buffer, buffer.nbytes), np.empty(0, np.uint8))
