"""The inputs of a program: push constants, specialization constants, bindings, workgroups."""

from __future__ import annotations

import numpy as np
import pytest

from dl4all.errors import DeviceError, ShaderError
from dl4all.runtime.protocols import Dispatch, span
from dl4all.testing.conformance.harness import Bench
from dl4all.testing.conformance.support.kernels import POISON, pushed, step, words

EIGHTH = int(np.float32(0.125).view(np.uint32))
QUARTER = int(np.float32(0.25).view(np.uint32))


def test_a_device_that_runs_no_programs_says_so(bench: Bench) -> None:
    if bench.capabilities.programs:
        pytest.skip("it does")
    with pytest.raises((DeviceError, ShaderError), match=r"^\[\w+\] "):
        bench.kernels.program("step")
    with pytest.raises((DeviceError, ShaderError), match=r"^\[\w+\] "):
        bench.stream.dispatch(Dispatch(None, [], (1, 1, 1)))
    with pytest.raises((DeviceError, ShaderError), match=r"^\[\w+\] "):
        bench.backend.record([Dispatch(None, [], (1, 1, 1))])


@pytest.mark.usefixtures("programs", "data")
class TestRunning:
    """The results of programs."""

    def test_push_constants_of_128_bytes(self, bench: Bench) -> None:
        values = words(0, 96).reshape(3, 32)
        buffers = [bench.poison(32) for _ in values]
        program = bench.kernels.program("push")
        for buffer, row in zip(buffers, values, strict=True):
            bench.stream.dispatch(Dispatch(program, [span(buffer)], (1, 1, 1), row.tobytes()))
        for buffer, row in zip(buffers, values, strict=True):
            bench.expect(buffer, row)

    @pytest.mark.parametrize(
        ("given", "expected"),
        [
            ((4, 2), (4, 2, 7, QUARTER)),
            ((4, 2, 11), (4, 2, 11, QUARTER)),
            ((16, 1, 0xFFFFFFFF, EIGHTH), (16, 1, 0xFFFFFFFF, EIGHTH)),
        ],
    )
    def test_specialization_constants(
        self, bench: Bench, given: tuple[int, ...], expected: tuple[int, ...]
    ) -> None:
        buffer = bench.poison(4)
        program = bench.kernels.program("constants", *given)
        bench.stream.dispatch(Dispatch(program, [span(buffer)], (1, 1, 1)))
        bench.expect(buffer, np.array(expected, np.uint32))

    @pytest.mark.parametrize("sides", [(1, 1, 1), (64, 1, 1), (1, 32, 2), (5, 3, 7)])
    def test_workgroups_sized_by_constants(self, bench: Bench, sides: tuple[int, int, int]) -> None:
        count = 5 * sides[0] * sides[1] * sides[2]
        before = words(1, count + 8)
        buffer = bench.put(before)
        bench.stream.dispatch(Dispatch(bench.kernels.program("sized", *sides), [span(buffer)], (5, 1, 1)))
        expected = before.copy()
        expected[:count] = before[:count] * np.uint32(3) + np.arange(count, dtype=np.uint32)
        bench.expect(buffer, expected)

    def test_one_buffer_in_several_places(self, bench: Bench) -> None:
        data = words(2, 100)
        x, y = bench.put(data), bench.poison(100)
        bench.run("add", x, x, y, n=100, k=4)
        bench.expect(y, data * np.uint32(5))

    def test_the_same_program_with_other_buffers_and_arguments(self, bench: Bench) -> None:
        """Backends keep recordings; the key must hold all that differs."""
        data = words(3, 4 * 256).reshape(4, 256)
        sources = [bench.put(row) for row in data]
        for round_ in range(2):
            for k in (1, 2):
                for n in (64, 200, 256):
                    for row, x in zip(data, sources, strict=True):
                        y = bench.poison(256)
                        bench.run("step", x, y, n=n, k=k + round_)
                        expected = np.full(256, POISON, np.uint32)
                        expected[:n] = step(row[:n], k + round_)
                        bench.expect(y, expected)

    def test_programs_come_and_go(self, bench: Bench) -> None:
        """Some get the identity of one that was freed."""
        data = words(4, 64)
        for k in range(200):
            module = bench.kernels.module("step" if k % 2 else "rotate")
            program = bench.backend.program(module, ())
            if k % 20 < 2:
                x, y = bench.put(data), bench.poison(64)
                bench.stream.dispatch(Dispatch(program, [span(x), span(y)], (1, 1, 1), pushed(64, k)))
                bench.expect(y, step(data, k) if k % 2 else np.roll(data, k))
            bench.stream.synchronize()
            program.free()
            program.free()


@pytest.mark.usefixtures("offsets", "data")
class TestOffsets:
    """Dispatches that bind pieces of buffers."""

    @pytest.mark.parametrize("place", [1, 2, 7, 100])
    def test_the_rest_of_the_buffer_stays(self, bench: Bench, place: int) -> None:
        n, first = 101, place * bench.unit
        before, data = words(1, first + n + 300), words(2, first + n)
        x, y = bench.put(data), bench.put(before)
        spans = span(x, 4 * first, 4 * n), span(y, 4 * first, 4 * n)
        bench.run("step", *spans, n=n, k=5)
        before[first : first + n] = step(data[first:], 5)
        bench.expect(y, before)

    def test_two_pieces_of_one_buffer(self, bench: Bench) -> None:
        n = 3 * bench.unit + 1
        second = 4 * bench.unit
        expected = words(3, second + n)
        buffer = bench.put(expected)
        for k in range(50):
            low, high = span(buffer, 0, 4 * n), span(buffer, 4 * second, 4 * n)
            bench.run("rotate", low, high, n=n, k=1)
            bench.run("step", high, low, n=n, k=k)
            expected[second : second + n] = np.roll(expected[:n], 1)
            expected[:n] = step(expected[second : second + n], k)
        bench.expect(buffer, expected)

    def test_every_place_of_a_buffer(self, bench: Bench) -> None:
        """Each unit of a buffer is written by a dispatch of its own."""
        unit, count = bench.unit, 40
        data = words(4, unit * count)
        x, y = bench.put(data), bench.poison(unit * count)
        expected = np.empty_like(data)
        for i, j in enumerate(np.random.default_rng(0).permutation(count)):
            source, target = span(x, 4 * unit * i, 4 * unit), span(y, 4 * unit * int(j), 4 * unit)
            bench.run("step", source, target, n=unit, k=i)
            expected[unit * j : unit * (j + 1)] = step(data[unit * i : unit * (i + 1)], i)
        bench.expect(y, expected)
