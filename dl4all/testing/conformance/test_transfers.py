"""Bytes between host and device, between buffers, and patterns into them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from dl4all.errors import ArgumentError
from dl4all.runtime.protocols import Copy, Fill, span
from dl4all.testing.conformance.harness import Bench
from dl4all.testing.conformance.support.kernels import bytes_of, step, words

pytestmark = pytest.mark.usefixtures("data")
Bytes = npt.NDArray[np.uint8]
SIZES = (1, 2, 3, 4, 5, 255, 256, 257, 1023, 4099, 65537, 1_000_003)
PLACES = [  # offset, bytes: the last ends with the buffer of 4096
    (0, 4), (4, 4), (4, 1), (8, 3), (252, 260), (256, 256), (1000, 2049), (4, 4091), (4092, 4), (0, 4096),
]  # fmt: skip


def random_bytes(count: int, seed: int = 0) -> Bytes:
    return np.random.default_rng([seed, count]).integers(0, 256, count, np.uint8)


def content(bench: Bench, buffer: Any, nbytes: int) -> Bytes:
    out = np.full(nbytes, 0xA5, np.uint8)
    bench.stream.download(span(buffer), out)
    return out


# With the host


@pytest.mark.parametrize("nbytes", SIZES)
def test_what_goes_up_comes_down(bench: Bench, nbytes: int) -> None:
    data = random_bytes(nbytes)
    buffer = bench.allocate(nbytes)
    bench.stream.upload(span(buffer), data)
    np.testing.assert_array_equal(content(bench, buffer, nbytes), data)


@pytest.mark.parametrize("part", [1, 3, 256, 1000])
def test_a_download_may_ask_for_the_start_only(bench: Bench, part: int) -> None:
    data = random_bytes(1001)
    buffer = bench.put(data)
    out = np.zeros(part + 8, np.uint8)
    bench.stream.download(span(buffer), out[:part])
    np.testing.assert_array_equal(out[:part], data[:part])
    assert not out[part:].any()


@pytest.mark.parametrize("part", [1, 3, 256, 1000])
def test_an_upload_may_be_shorter_than_the_span(bench: Bench, part: int) -> None:
    buffer = bench.put(random_bytes(1001))
    data = random_bytes(part)
    bench.stream.upload(span(buffer), data)
    np.testing.assert_array_equal(content(bench, buffer, part), data)


@pytest.mark.parametrize("pending", [False, True])
@pytest.mark.parametrize(("offset", "nbytes"), PLACES)
def test_an_upload_keeps_the_bytes_around(bench: Bench, offset: int, nbytes: int, pending: bool) -> None:
    """Also where earlier work on the buffer is still pending, so that it has to queue."""
    before, data = random_bytes(4096), random_bytes(nbytes, 1)
    buffer, target = bench.put(before), bench.allocate(4096)
    if pending:
        bench.stream.copy(Copy(span(buffer, 0, 4096), span(target, 0, 4096)))
    whole = -(-nbytes // 4) * 4
    bench.stream.upload(span(buffer, offset, whole), data)
    found = content(bench, buffer, 4096)
    np.testing.assert_array_equal(found[:offset], before[:offset])
    np.testing.assert_array_equal(found[offset : offset + nbytes], data)
    np.testing.assert_array_equal(found[offset + whole :], before[offset + whole :])
    if pending:
        np.testing.assert_array_equal(content(bench, target, 4096), before)


@pytest.mark.parametrize(("offset", "nbytes"), PLACES)
def test_a_download_from_the_middle(bench: Bench, offset: int, nbytes: int) -> None:
    data = random_bytes(4096)
    buffer = bench.put(data)
    out = np.full(nbytes + 16, 0xA5, np.uint8)
    bench.stream.download(span(buffer, offset), out[8:-8])
    np.testing.assert_array_equal(out[8:-8], data[offset : offset + nbytes])
    assert (out[:8] == 0xA5).all()
    assert (out[-8:] == 0xA5).all()


@pytest.mark.parametrize("nbytes", [64, 1 << 20])
def test_the_source_of_an_upload_may_change_at_once(bench: Bench, nbytes: int) -> None:
    """Also where the copy is only recorded, because the buffer is in use."""
    buffer, other = bench.put(random_bytes(nbytes, 1)), bench.allocate(nbytes)
    data = random_bytes(nbytes, 2)
    bench.stream.copy(Copy(span(buffer), span(other)))
    bench.stream.upload(span(buffer), data)
    data[:] = 0
    np.testing.assert_array_equal(content(bench, buffer, nbytes), random_bytes(nbytes, 2))
    np.testing.assert_array_equal(content(bench, other, nbytes), random_bytes(nbytes, 1))


def test_read_only_host_memory_can_be_uploaded(bench: Bench) -> None:
    data = random_bytes(64)
    data.flags.writeable = False
    np.testing.assert_array_equal(content(bench, bench.put(data), 64), data)


def test_many_uploads_to_one_buffer(bench: Bench) -> None:
    """Each is read by a copy before the next overwrites it."""
    buffer = bench.poison(1000)
    results = [bench.poison(1000) for _ in range(100)]
    for seed, result in enumerate(results):
        bench.stream.upload(span(buffer, 0, 4000), bytes_of(words(seed, 1000)))
        bench.stream.copy(Copy(span(buffer, 0, 4000), span(result, 0, 4000)))
    for seed, result in enumerate(results):
        bench.expect(result, words(seed, 1000))


# On the device


@pytest.mark.parametrize("nbytes", [4, 8, 252, 256, 260, 65532, 1 << 20, (1 << 22) + 4])
def test_copies_between_buffers(bench: Bench, nbytes: int) -> None:
    source, before = random_bytes(nbytes + 64), random_bytes(nbytes + 64, 1)
    x, y = bench.put(source), bench.put(before)
    bench.stream.copy(Copy(span(x, 12, nbytes), span(y, 40, nbytes)))
    found = content(bench, y, nbytes + 64)
    np.testing.assert_array_equal(found[40 : 40 + nbytes], source[12 : 12 + nbytes])
    np.testing.assert_array_equal(found[:40], before[:40])
    np.testing.assert_array_equal(found[40 + nbytes :], before[40 + nbytes :])
    np.testing.assert_array_equal(content(bench, x, nbytes + 64), source)


@pytest.mark.parametrize("nbytes", [1 << 26])
def test_a_large_copy(bench: Bench, nbytes: int) -> None:
    if bench.backend.info.limits.allocation_size < nbytes:
        pytest.skip(f"one buffer may have {bench.backend.info.limits.allocation_size} bytes")
    source = words(1, nbytes // 4)
    x, y = bench.put(source), bench.allocate(nbytes)
    bench.stream.fill(Fill(span(y, 0, nbytes), 0xFFFFFFFF))
    bench.stream.copy(Copy(span(x, 0, nbytes - 4), span(y, 4, nbytes - 4)))
    found = bench.get(y, nbytes // 4)
    assert found[0] == 0xFFFFFFFF
    np.testing.assert_array_equal(found[1:], source[:-1])


@pytest.mark.parametrize(
    ("source", "target", "nbytes"),
    [(0, 2048, 2048), (2048, 0, 2048), (4, 8, 4), (1000, 2044, 1044), (256, 0, 256)],
)
def test_copies_within_a_buffer(bench: Bench, source: int, target: int, nbytes: int) -> None:
    """Up to where the two meet."""
    expected = random_bytes(4096)
    buffer = bench.put(expected)
    bench.stream.copy(Copy(span(buffer, source, nbytes), span(buffer, target, nbytes)))
    expected[target : target + nbytes] = expected[source : source + nbytes]
    np.testing.assert_array_equal(content(bench, buffer, 4096), expected)


@pytest.mark.parametrize("word", [0, 1, 0x01020304, 0xFFFFFFFF, 0x80000000])
@pytest.mark.parametrize(("offset", "nbytes"), [(0, 4096), (0, 4), (4, 4088), (1000, 1036), (4092, 4)])
def test_fills(bench: Bench, offset: int, nbytes: int, word: int) -> None:
    expected = random_bytes(4096)
    buffer = bench.put(expected)
    bench.stream.fill(Fill(span(buffer, offset, nbytes), word))
    expected[offset : offset + nbytes].view(np.uint32)[:] = word
    np.testing.assert_array_equal(content(bench, buffer, 4096), expected)


def test_a_fill_of_an_odd_buffer(bench: Bench) -> None:
    """A whole buffer, however its size was rounded."""
    buffer = bench.put(random_bytes(1001))
    bench.stream.fill(Fill(span(buffer), 0x01020304))
    np.testing.assert_array_equal(content(bench, buffer, 1000).view(np.uint32), np.full(250, 0x01020304))


@pytest.mark.parametrize("nbytes", [0, 4])
def test_nothing_and_little(bench: Bench, nbytes: int) -> None:
    """Empty commands are commands."""
    expected = random_bytes(64)
    x, y = bench.put(expected), bench.put(expected)
    bench.stream.copy(Copy(span(x, 8, nbytes), span(y, 16, nbytes)))
    bench.stream.fill(Fill(span(y, 32, nbytes), 0x0A0B0C0D))
    expected = expected.copy()
    expected[16 : 16 + nbytes] = expected[8 : 8 + nbytes]
    expected[32 : 32 + nbytes].view(np.uint32)[:] = 0x0A0B0C0D
    np.testing.assert_array_equal(content(bench, y, 64), expected)


def test_copies_and_fills_of_host_memory(bench: Bench) -> None:
    source = words(1, 500)
    x, y = bench.put(source, "host"), bench.put(words(2, 500), "host")
    bench.stream.copy(Copy(span(x, 400, 800), span(y, 0, 800)))
    bench.stream.fill(Fill(span(y, 1200, 800), 77))
    expected = words(2, 500)
    expected[:200], expected[300:] = source[100:300], 77
    bench.stream.synchronize()
    assert y.mapped is not None
    np.testing.assert_array_equal(y.mapped[:2000].view(np.uint32), expected)


@pytest.mark.usefixtures("programs")
def test_copies_and_fills_between_dispatches(bench: Bench) -> None:
    x, y, expected = bench.put(words(1, 1000)), bench.poison(1000), words(1, 1000)
    for k in range(100):
        bench.run("step", x, y, n=1000, k=k)
        bench.stream.copy(Copy(span(y, 0, 2000), span(x, 2000, 2000)))
        bench.stream.fill(Fill(span(x, 4 * (k % 7), 8), k))
        expected = np.concatenate([expected[:500], step(expected, k)[:500]])
        expected[k % 7 : k % 7 + 2] = k
    bench.expect(x, expected)


# Refusals


@pytest.mark.parametrize(
    ("source", "target"),
    [((0, 8), (16, 12)), ((0, 12), (16, 8)), ((0, 8), (4, 8)), ((4, 8), (0, 8)), ((0, 8), (0, 8))],
)
def test_copies_that_make_no_sense(bench: Bench, source: tuple[int, int], target: tuple[int, int]) -> None:
    """Unequal sizes, and spans that overlap."""
    expected = random_bytes(64)
    buffer = bench.put(expected)
    with pytest.raises(ArgumentError):
        bench.stream.copy(Copy(span(buffer, *source), span(buffer, *target)))
    np.testing.assert_array_equal(content(bench, buffer, 64), expected)


@pytest.mark.parametrize("word", [-1, 2**32])
def test_fills_with_what_is_no_word(bench: Bench, word: int) -> None:
    expected = random_bytes(64)
    buffer = bench.put(expected)
    with pytest.raises(ArgumentError):
        bench.stream.fill(Fill(span(buffer, 0, 64), word))
    np.testing.assert_array_equal(content(bench, buffer, 64), expected)
