"""What a program is given: push constants, specialization constants, bindings, workgroups."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dl4all.errors import ShaderError
from dl4all.runtime.backend import Backend
from dl4all.runtime.info import Limits
from dl4all.runtime.spirv import Shader, load
from tests.conformance.kernels import Kernels, get, poison, put

EIGHTH = int(np.float32(0.125).view(np.uint32))
QUARTER = int(np.float32(0.25).view(np.uint32))


def test_push_constants_of_128_bytes(backend: Backend, kernels: Kernels) -> None:
    values = np.random.default_rng(0).integers(0, 2**32, (3, 32), np.uint32)
    buffers = [poison(backend, 32) for _ in values]
    for buffer, row in zip(buffers, values, strict=True):
        backend.stream.dispatch(kernels.program("push"), [buffer], (1, 1, 1), row.tobytes())
    for buffer, row in zip(buffers, values, strict=True):
        np.testing.assert_array_equal(get(backend, buffer, 32), row)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ((4, 2), (4, 2, 7, QUARTER)),
        ((4, 2, 11), (4, 2, 11, QUARTER)),
        ((16, 1, 0xFFFFFFFF, EIGHTH), (16, 1, 0xFFFFFFFF, EIGHTH)),
    ],
)
def test_specialization_constants(
    backend: Backend, kernels: Kernels, given: tuple[int, ...], expected: tuple[int, ...]
) -> None:
    buffer = poison(backend, 4)
    backend.stream.dispatch(kernels.program("constants", *given), [buffer], (1, 1, 1), b"")
    assert tuple(get(backend, buffer, 4)) == expected


@pytest.mark.parametrize("groups", [(1, 1, 1), (5, 1, 1), (1, 5, 1), (1, 1, 5), (3, 4, 5)])
def test_workgroups_in_three_dimensions(
    backend: Backend, kernels: Kernels, groups: tuple[int, int, int]
) -> None:
    x, y, z = (count * size for count, size in zip(groups, (2, 3, 4), strict=True))
    buffer = poison(backend, x * y * z + 8)
    backend.stream.dispatch(kernels.program("groups"), [buffer], groups, b"")
    found = get(backend, buffer, x * y * z + 8)
    k, j, i = np.meshgrid(np.arange(z), np.arange(y), np.arange(x), indexing="ij")
    np.testing.assert_array_equal(found[:-8].reshape(z, y, x), i + 100 * j + 10000 * k)
    assert (found[-8:] == 0xFFFFFFFF).all()


def test_eight_buffers(backend: Backend, kernels: Kernels) -> None:
    if backend.info.limits.storage_buffers < 8:
        pytest.skip(f"the device binds {backend.info.limits.storage_buffers}")
    data = np.random.default_rng(1).integers(0, 2**32, (7, 100), np.uint32)
    buffers = [*(put(backend, row) for row in data), poison(backend, 100)]
    kernels.run("eight", *buffers, n=100, k=0)
    expected = sum(row * np.uint32(3**i) for i, row in enumerate(data))
    np.testing.assert_array_equal(get(backend, buffers[-1], 100), expected)


def test_64_bit_integers(backend: Backend, kernels: Kernels) -> None:
    """They run where the feature is on, and are refused where it is not."""
    x, y = put(backend, np.arange(100, dtype=np.uint32) << 25), poison(backend, 100)
    if "int64" not in backend.features:
        with pytest.raises(ShaderError, match=r"^\[wide.comp\] needs Int64, which is not enabled"):
            kernels.run("wide", x, y, n=100, k=12345)
        return
    kernels.run("wide", x, y, n=100, k=12345)
    expected = (np.arange(100, dtype=np.uint64) << np.uint64(25)) * np.uint64(12345) >> np.uint64(32)
    np.testing.assert_array_equal(get(backend, y, 100), expected)


def test_16_kib_of_shared_memory(backend: Backend, kernels: Kernels) -> None:
    y = poison(backend, 4096)
    backend.stream.dispatch(kernels.program("shared"), [y], (1, 1, 1), b"")
    np.testing.assert_array_equal(get(backend, y, 4096), (np.arange(4096, dtype=np.uint32) ** 2)[::-1])


def test_shuffling(backend: Backend, kernels: Kernels) -> None:
    """It runs where subgroups can, and is refused where they cannot."""
    if "subgroup_shuffle" not in backend.features:
        with pytest.raises(
            ShaderError, match=r"^\[shuffle.comp\] needs GroupNonUniformShuffle, which is not"
        ):
            kernels.program("shuffle")
        return
    y = poison(backend, 64)
    backend.stream.dispatch(kernels.program("shuffle"), [y], (1, 1, 1), b"")
    size = min(backend.info.subgroup_size, 64)
    np.testing.assert_array_equal(get(backend, y, 64), np.arange(64) // size * size)


def test_one_buffer_in_several_places(backend: Backend, kernels: Kernels) -> None:
    data = np.random.default_rng(2).integers(0, 2**32, 100, np.uint32)
    x, y = put(backend, data), poison(backend, 100)
    kernels.run("add", x, x, y, n=100, k=4)
    np.testing.assert_array_equal(get(backend, y, 100), data * np.uint32(5))


def test_the_same_program_with_other_buffers_and_arguments(backend: Backend, kernels: Kernels) -> None:
    """Backends keep recordings; the key must hold all that differs."""
    data = np.random.default_rng(3).integers(0, 2**32, (4, 256), np.uint32)
    sources = [put(backend, row) for row in data]
    for round_ in range(2):
        for k in (1, 2):
            for n in (64, 200, 256):
                for row, x in zip(data, sources, strict=True):
                    y = poison(backend, 256)
                    kernels.run("step", x, y, n=n, k=k + round_)
                    expected = np.full(256, 0xFFFFFFFF, np.uint32)
                    expected[:n] = row[:n] * np.uint32(3) + np.uint32(k + round_)
                    np.testing.assert_array_equal(get(backend, y, 256), expected)


def test_programs_come_and_go(backend: Any, kernels: Kernels) -> None:
    module = load(Shader("step.comp"), kernels.folder)
    if not hasattr(backend, "programs"):
        pytest.skip("programs are no driver objects here")
    before = len(backend.programs)
    for _ in range(200):
        backend.program(module, ()).free()
    assert len(backend.programs) == before


@pytest.mark.parametrize(
    ("name", "constants", "message"),
    [
        ("nine", (), r"^\[nine.comp\] binds 9 buffers, the device allows [4-8]$"),
        ("shared_more", (), r"^\[shared_more.comp\] shares 4194304 bytes within a workgroup, the device"),
        ("gap", (), r"^\[gap.comp\] bindings must be 0, 1, 2, ... without gaps, got \[0, 2\]$"),
        ("constants", (1 << 20, 1), r"^\[constants.comp\] has workgroups of \(1048576, 1, 1\), the device"),
        ("constants", (1 << 10, 1 << 10), r"^\[constants.comp\] has workgroups of \(1024, 1024, 1\), the"),
    ],
)
def test_programs_that_the_device_cannot_run(
    backend: Backend, kernels: Kernels, name: str, constants: tuple[int, ...], message: str
) -> None:
    with pytest.raises(ShaderError, match=message):
        kernels.program(name, *constants)


def test_too_many_push_constants(backend: Any, shaders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = dataclasses.replace(backend.info, limits=dataclasses.replace(Limits(), push_constants=124))
    monkeypatch.setattr(backend, "info", info)
    with pytest.raises(ShaderError, match=r"takes 128 bytes of push constants, the device allows 124$"):
        backend.program(load(Shader("push.comp"), shaders), ())
