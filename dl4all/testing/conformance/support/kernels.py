"""The suite's kernels as programs of a backend, and what they compute in NumPy."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dl4all.runtime.protocols import Backend, Dispatch, Grid, MemoryKind, Program, Span, Stream, span
from dl4all.runtime.spirv import Shader, SpirvModule, load
from dl4all.testing.conformance.support.sources import MACROS, SOURCES

Words = npt.NDArray[np.uint32]
LOCAL = 64  # invocations of a workgroup in the one-dimensional kernels
POISON = 0xFFFFFFFF


def write_shaders(folder: Path) -> None:
    """Write every kernel to a shaders folder."""
    (folder / "include").mkdir()
    for name, source in SOURCES.items():
        (folder / f"{name}.comp").write_text(source)


def pushed(n: int, k: int) -> bytes:
    """The push constants of most kernels."""
    return struct.pack("<II", n, k)


class Kernels:
    """The kernels' programs on one backend, built when first asked for."""

    def __init__(self, backend: Backend, folder: Path) -> None:
        self.backend, self.folder = backend, folder
        self._programs: dict[tuple[str, tuple[int, ...]], Program] = {}

    def module(self, name: str) -> SpirvModule:
        """A compiled kernel."""
        return load(Shader(f"{name}.comp", MACROS.get(name, ())), self.folder)

    def program(self, name: str, *constants: int) -> Program:
        """A kernel with its specialization constants."""
        key = (name, constants)
        if key not in self._programs:
            self._programs[key] = self.backend.program(self.module(name), constants)
        return self._programs[key]

    def command(self, name: str, *operands: Any, n: int, k: int, seconds: float = 0.0) -> Dispatch:
        """A one-dimensional kernel over `n` elements of buffers or spans."""
        groups = (-(-n // LOCAL), 1, 1)
        return Dispatch(self.program(name), spans_of(operands), groups, pushed(n, k), seconds)

    def run(self, name: str, *operands: Any, n: int, k: int, stream: Stream | None = None) -> None:
        """Dispatch such a kernel."""
        (stream or self.backend.stream).dispatch(self.command(name, *operands, n=n, k=k))


def spans_of(operands: Any) -> list[Span]:
    """Spans as they are, buffers as a whole."""
    return [operand if isinstance(operand, Span) else span(operand) for operand in operands]


def bytes_of(data: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """An array's memory."""
    return data.reshape(-1).view(np.uint8)


# Data


def put(backend: Backend, data: npt.NDArray[Any], kind: MemoryKind = "device") -> Any:
    """A new buffer that holds `data`."""
    buffer = backend.allocate(max(data.nbytes, 1), kind)
    backend.stream.upload(span(buffer), bytes_of(data))
    return buffer


def get(backend: Backend, source: Any, count: int, stream: Stream | None = None) -> Words:
    """The first `count` words of a buffer or span."""
    out = np.full(count, 0xDEADBEEF, np.uint32)
    (stream or backend.stream).download(spans_of([source])[0], bytes_of(out))
    return out


def poison(backend: Backend, count: int) -> Any:
    """A new buffer of `count` words, all bits set."""
    return put(backend, np.full(count, POISON, np.uint32))


def words(seed: int, count: int) -> Words:
    """Random words."""
    return np.random.default_rng(seed).integers(0, 2**32, count, np.uint32)


# The kernels in NumPy


def step(x: Words, k: int) -> Words:
    """``step`` and ``step_in_place``."""
    return x * np.uint32(3) + np.uint32(k)


def busy(x: Words, k: int) -> Words:
    """``busy``: k steps of x -> x * 1664525 + 1013904223, put together by squaring."""
    factor, offset, a, c = 1, 0, 1664525, 1013904223
    while k:
        if k & 1:
            factor, offset = factor * a % 2**32, (offset * a + c) % 2**32
        a, c = a * a % 2**32, (c * a + c) % 2**32
        k >>= 1
    return x * np.uint32(factor) + np.uint32(offset)


def placed(y: Words, groups: Grid) -> Words:
    """``groups`` and ``placed`` on what `y` held."""
    sides = [count * size for count, size in zip(groups, (2, 3, 4), strict=True)]
    z, row, x = np.meshgrid(*(np.arange(side, dtype=np.uint32) for side in reversed(sides)), indexing="ij")
    near = x // 2 + row // 3 * 5 + z // 4 * 25
    added = x + 131 * row + 17161 * z + 7 * near
    result: Words = y * np.uint32(3) + added.reshape(-1).astype(np.uint32)
    return result
