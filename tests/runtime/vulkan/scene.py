"""A little of everything that a backend does, with the numbers that must come out."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dl4all.runtime.protocols import Backend, Copy, Dispatch, Fill, Span, span
from dl4all.runtime.spirv import Shader, SpirvModule, load

N = 251
SOURCE = """#version 450
layout(local_size_x = 64) in;
layout(binding = 0) readonly buffer X { uint x[]; };
layout(binding = 1) writeonly buffer Y { uint y[]; };
layout(push_constant) uniform P { uint n; uint k; } p;
void main() {
    uint i = gl_GlobalInvocationID.x;
    if (i < p.n) y[i] = x[i] * 3u + p.k;
}
"""


def module(folder: Path) -> SpirvModule:
    """``y = 3 x + k`` on 32-bit unsigned integers."""
    (folder / "include").mkdir(exist_ok=True)
    (folder / "step.comp").write_text(SOURCE)
    return load(Shader("step.comp"), folder)


def push(k: int, n: int = N) -> bytes:
    return struct.pack("<II", n, k)


def step(program: Any, x: Span, y: Span, k: int = 1) -> Dispatch:
    return Dispatch(program, [x, y], (-(-N // 64), 1, 1), push(k))


def words(seed: int) -> npt.NDArray[np.uint32]:
    return np.random.default_rng(seed).integers(0, 2**32, N, np.uint32)


def after(x: npt.NDArray[np.uint32], *ks: int) -> npt.NDArray[np.uint32]:
    """What steps with these constants make of x."""
    for k in ks:
        x = x * np.uint32(3) + np.uint32(k)
    return x


def play(backend: Backend, code: SpirvModule) -> None:
    """Use every kind of object and command; wrong numbers are an AssertionError."""
    start = words(0)
    program = backend.program(code, ())
    buffers = [backend.allocate(4 * N) for _ in range(3)]
    host = backend.allocate(4 * N, "host")
    x, y, z = (span(buffer) for buffer in buffers)
    out = np.full(N, 0xDEADBEEF, np.uint32)
    stream, other = backend.stream, backend.new_stream()

    stream.upload(x, start.view(np.uint8))
    for k in range(40):  # more than a batch
        stream.dispatch(step(program, *((x, y) if k % 2 == 0 else (y, x)), k))
    stream.copy(Copy(x, z))
    stream.fill(Fill(y, 0xFFFFFFFF))
    other.wait_event(stream.record_event())
    other.dispatch(step(program, z, y, 7))
    other.dispatch(step(program, y, span(host), 8)._replace(seconds=2.5))
    stream.wait_event(other.record_event())
    recording = backend.record([step(program, z, x, 1), Copy(x, y), step(program, y, z, 2)], [2])
    stream.replay(recording)
    stream.replay(recording, {2: step(program, y, z, 5)})
    stream.download(z, out.view(np.uint8))
    expected = after(start, *range(40))
    np.testing.assert_array_equal(out, after(expected, 1, 2, 1, 5))
    other.synchronize()
    assert host.mapped is not None
    np.testing.assert_array_equal(host.mapped[: 4 * N].view(np.uint32), after(expected, 7, 8))

    stream.dispatch(step(program, z, x), lambda *_: None)
    stream.synchronize()
    recording.free()
    other.close()
    program.free()
    for buffer in (*buffers, host):
        buffer.free()
