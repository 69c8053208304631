"""Commands take effect as if one after the other, whatever the backend does behind that.

A software driver keeps them in order without any barrier, so a missing one shows here only on a
GPU, or anywhere with ``DL4ALL_VALIDATION=1``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from dl4all.runtime.backend import Backend
from tests.conformance.kernels import Kernels, Words, get, poison, put

N = 1000
CHAIN = 300  # several batches of a stream that batches
THREE = np.uint32(3)


def words(seed: int, count: int = N) -> Words:
    return np.random.default_rng(seed).integers(0, 2**32, count, np.uint32)


def step(x: Words, k: int) -> Words:
    return x * THREE + np.uint32(k)


def test_read_after_write_in_ping_pong(backend: Backend, kernels: Kernels) -> None:
    expected = words(0)
    x, y = put(backend, expected), poison(backend, N)
    for i in range(CHAIN):
        kernels.run("rotate", x, y, n=N, k=1 + 64 * (i % 3))
        expected = np.roll(expected, 1 + 64 * (i % 3))
        x, y = y, x
    np.testing.assert_array_equal(get(backend, x, N), expected)


def test_in_place(backend: Backend, kernels: Kernels) -> None:
    expected = words(1)
    x = put(backend, expected)
    for i in range(CHAIN):
        kernels.run("step_in_place", x, n=N, k=i % 3)
        expected = step(expected, i % 3)
    np.testing.assert_array_equal(get(backend, x, N), expected)


def test_write_after_read(backend: Backend, kernels: Kernels) -> None:
    """Each result reads x before the next command overwrites it."""
    value = words(2)
    x, other = put(backend, value), put(backend, words(3))
    results = [poison(backend, N) for _ in range(60)]
    for i, result in enumerate(results):
        kernels.run("step", x, result, n=N, k=1)
        kernels.run("rotate", other, x, n=N, k=1 + i % 4)
    expected = step(value, 1)
    for i, result in enumerate(results):
        np.testing.assert_array_equal(get(backend, result, N), expected)
        expected = step(np.roll(words(3), 1 + i % 4), 1)


def test_write_after_write(backend: Backend, kernels: Kernels) -> None:
    sources = [put(backend, words(seed)) for seed in range(4)]
    y = poison(backend, N)
    for i in range(CHAIN):
        kernels.run("rotate", sources[i % 4], y, n=N, k=1 + i % 3)
    last = CHAIN - 1
    expected = np.roll(words(last % 4), 1 + last % 3)
    np.testing.assert_array_equal(get(backend, y, N), expected)


@pytest.mark.parametrize("before", [0, 1, 30, 31, 32, 33, 63, 64, 130])
def test_upload_to_what_a_pending_command_reads(backend: Backend, kernels: Kernels, before: int) -> None:
    """At every place of a batch, and with several batches running."""
    old, new = words(4), words(5)
    x, y, z, w = put(backend, old), poison(backend, N), poison(backend, N), put(backend, words(6))
    for _ in range(before):
        kernels.run("step_in_place", w, n=N, k=1)
    kernels.run("step", x, y, n=N, k=1)
    backend.stream.upload(x, new.view(np.uint8))
    kernels.run("step", x, z, n=N, k=2)
    np.testing.assert_array_equal(get(backend, z, N), step(new, 2))
    np.testing.assert_array_equal(get(backend, y, N), step(old, 1))


def test_upload_to_what_a_pending_command_writes(backend: Backend, kernels: Kernels) -> None:
    old, new = words(7), words(8)
    x, y = put(backend, old), poison(backend, N)
    kernels.run("step", x, y, n=N, k=1)
    backend.stream.upload(y, new.view(np.uint8))
    np.testing.assert_array_equal(get(backend, y, N), new)


def test_many_uploads_to_one_buffer(backend: Backend, kernels: Kernels) -> None:
    x = poison(backend, N)
    results = [poison(backend, N) for _ in range(100)]
    for seed, result in enumerate(results):
        backend.stream.upload(x, words(seed).view(np.uint8))
        kernels.run("step", x, result, n=N, k=1)
    for seed, result in enumerate(results):
        np.testing.assert_array_equal(get(backend, result, N), step(words(seed), 1))


def test_downloads_between_commands(backend: Backend, kernels: Kernels) -> None:
    expected = words(9)
    x = put(backend, expected)
    for i in range(100):
        kernels.run("step_in_place", x, n=N, k=i % 3)
        expected = step(expected, i % 3)
        if i % 7 == 0:
            np.testing.assert_array_equal(get(backend, x, N), expected)


def test_large_and_small_commands_in_turn(backend: Backend, kernels: Kernels) -> None:
    """A long command must be over before a short one reads what it wrote last."""
    count = 1 << 20
    large = words(10, count)
    x, y, z = put(backend, large), poison(backend, count), poison(backend, count)
    for _ in range(5):
        kernels.run("rotate", x, y, n=count, k=1)
        kernels.run("step", y, z, n=64, k=1)
        kernels.run("step_in_place", x, n=64, k=2)
        large_y = np.roll(large, 1)
        large[:64] = step(large[:64], 2)
    np.testing.assert_array_equal(get(backend, z, 64), step(large_y[:64], 1))
    np.testing.assert_array_equal(get(backend, x, count), large)


class Model:
    """A few buffers and the NumPy arrays that should be in them."""

    def __init__(self, backend: Backend, kernels: Kernels, seed: int) -> None:
        self.backend, self.kernels = backend, kernels
        self.random = np.random.default_rng(seed)
        self.arrays: list[npt.NDArray[np.uint32]] = [words(seed * 100 + i) for i in range(5)]
        self.buffers: list[Any] = [put(backend, array) for array in self.arrays]

    def command(self) -> str:
        """One command, on both sides."""
        kind = self.random.choice(
            ["step", "step_in_place", "rotate", "add", "upload", "download", "synchronize", "renew"],
            p=[0.22, 0.16, 0.2, 0.2, 0.1, 0.08, 0.02, 0.02],
        )
        x, y, z = (int(i) for i in self.random.permutation(5)[:3])
        k = int(self.random.integers(1, 3))
        getattr(self, kind)(x, y, z, k)
        return f"{kind} {x} {y} {z} {k}"

    def step(self, x: int, y: int, z: int, k: int) -> None:
        self.kernels.run("step", self.buffers[x], self.buffers[y], n=N, k=k)
        self.arrays[y] = step(self.arrays[x], k)

    def step_in_place(self, x: int, y: int, z: int, k: int) -> None:
        self.kernels.run("step_in_place", self.buffers[x], n=N, k=k)
        self.arrays[x] = step(self.arrays[x], k)

    def rotate(self, x: int, y: int, z: int, k: int) -> None:
        self.kernels.run("rotate", self.buffers[x], self.buffers[y], n=N, k=64 * k + 1)
        self.arrays[y] = np.roll(self.arrays[x], 64 * k + 1)

    def add(self, x: int, y: int, z: int, k: int) -> None:
        self.kernels.run("add", self.buffers[x], self.buffers[y], self.buffers[z], n=N, k=k)
        self.arrays[z] = self.arrays[x] + self.arrays[y] * np.uint32(k)

    def upload(self, x: int, y: int, z: int, k: int) -> None:
        self.arrays[x] = self.random.integers(0, 2**32, N, np.uint32)
        self.backend.stream.upload(self.buffers[x], self.arrays[x].view(np.uint8))

    def download(self, x: int, y: int, z: int, k: int) -> None:
        np.testing.assert_array_equal(get(self.backend, self.buffers[x], N), self.arrays[x])

    def synchronize(self, x: int, y: int, z: int, k: int) -> None:
        self.backend.stream.synchronize()

    def renew(self, x: int, y: int, z: int, k: int) -> None:
        """A new buffer in the place of an old one."""
        self.backend.stream.synchronize()
        self.buffers[x].free()
        self.buffers[x] = put(self.backend, self.arrays[x])


@pytest.mark.parametrize("seed", range(6))
def test_random_commands(backend: Backend, kernels: Kernels, seed: int) -> None:
    model = Model(backend, kernels, seed)
    said = [model.command() for _ in range(400)]
    for i, array in enumerate(model.arrays):
        found = get(backend, model.buffers[i], N)
        np.testing.assert_array_equal(found, array, err_msg="\n".join(said[-40:]))
