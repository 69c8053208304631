"""The most that the device says it takes, and more than that."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dl4all.errors import ArgumentError, DeviceError, ShaderError
from dl4all.runtime.protocols import Dispatch, span
from dl4all.runtime.requirements import MAX_BINDINGS
from dl4all.testing.conformance.harness import Bench
from dl4all.testing.conformance.support.kernels import placed, pushed, words

pytestmark = pytest.mark.usefixtures("programs")
ENOUGH = 65535  # workgroups along one side: what every device allows


@pytest.mark.usefixtures("data")
@pytest.mark.parametrize("groups", [(1, 1, 1), (5, 1, 1), (1, 5, 1), (1, 1, 5), (3, 4, 5), (17, 1, 13)])
def test_workgroups_in_three_dimensions(bench: Bench, groups: tuple[int, int, int]) -> None:
    count = 24 * groups[0] * groups[1] * groups[2]
    before = words(1, count + 8)
    buffer = bench.put(before)
    bench.stream.dispatch(Dispatch(bench.kernels.program("groups"), [span(buffer)], groups))
    bench.expect(buffer, np.concatenate([placed(before[:-8], groups), before[-8:]]))


@pytest.mark.usefixtures("data")
@pytest.mark.parametrize("side", [0, 1, 2])
def test_the_largest_grids(bench: Bench, side: int) -> None:
    count = min(bench.backend.info.limits.workgroup_count[side], ENOUGH)
    groups: Any = tuple(count if i == side else 1 for i in range(3))
    before = words(2, count + 8)
    buffer = bench.put(before)
    bench.stream.dispatch(Dispatch(bench.kernels.program("line"), [span(buffer)], groups, pushed(0, 5)))
    expected = before.copy()
    expected[:-8] = before[:-8] * np.uint32(3) + np.arange(5, count + 5, dtype=np.uint32)
    bench.expect(buffer, expected)


@pytest.mark.parametrize("side", [0, 1, 2])
def test_larger_grids_are_refused(bench: Bench, side: int) -> None:
    most = bench.backend.info.limits.workgroup_count[side]
    groups: Any = tuple(most + 1 if i == side else 1 for i in range(3))
    buffer = bench.allocate(4 * 64)
    with pytest.raises((ArgumentError, DeviceError)):
        bench.stream.dispatch(Dispatch(bench.kernels.program("line"), [span(buffer)], groups, pushed(0, 5)))


@pytest.mark.usefixtures("data")
@pytest.mark.parametrize("side", [0, 1, 2])
def test_the_largest_workgroups(bench: Bench, side: int) -> None:
    limits = bench.backend.info.limits
    size = min(limits.workgroup_size[side], limits.workgroup_invocations)
    constants = [size if i == side else 1 for i in range(3)]
    before = words(3, 2 * size + 8)
    buffer = bench.put(before)
    bench.stream.dispatch(Dispatch(bench.kernels.program("sized", *constants), [span(buffer)], (2, 1, 1)))
    expected = before.copy()
    expected[:-8] = before[:-8] * np.uint32(3) + np.arange(2 * size, dtype=np.uint32)
    bench.expect(buffer, expected)


@pytest.mark.usefixtures("data")
@pytest.mark.parametrize(("name", "count"), [("four", 4), ("eight", 8)])
def test_as_many_buffers_as_the_device_binds(bench: Bench, name: str, count: int) -> None:
    if bench.backend.info.limits.storage_buffers < count:
        pytest.skip(f"the device binds {bench.backend.info.limits.storage_buffers}")
    data = words(1, 100 * (count - 1)).reshape(count - 1, 100)
    buffers = [*(bench.put(row) for row in data), bench.poison(100)]
    bench.run(name, *buffers, n=100, k=0)
    weights = np.array([3**i for i in range(count - 1)], np.uint32)
    bench.expect(buffers[-1], (data * weights[:, None]).sum(axis=0, dtype=np.uint32))


@pytest.mark.usefixtures("data")
def test_16_kib_of_shared_memory(bench: Bench) -> None:
    y = bench.poison(4096)
    bench.stream.dispatch(Dispatch(bench.kernels.program("shared"), [span(y)], (1, 1, 1)))
    bench.expect(y, np.arange(4096, dtype=np.uint32)[::-1] ** np.uint32(2))


def test_more_bytes_than_can_be_bound_are_refused(bench: Bench) -> None:
    limits = bench.backend.info.limits
    nbytes = limits.storage_buffer_range + 4
    if nbytes > min(2**28, limits.allocation_size):
        pytest.skip(f"the device binds {limits.storage_buffer_range} bytes")
    x, y = bench.allocate(nbytes), bench.allocate(256)
    with pytest.raises((ArgumentError, DeviceError)):
        bench.run("step", x, y, n=64, k=1)
    if bench.unit:
        bench.run("step", span(x, 0, limits.storage_buffer_range), y, n=64, k=1)


@pytest.mark.parametrize(
    ("name", "constants", "message"),
    [
        ("nine", (), rf"^\[nine.comp\] binds 9 buffers, the device allows [4-{MAX_BINDINGS}]$"),
        ("shared_more", (), r"^\[shared_more.comp\] shares 4194304 bytes within a workgroup, the device"),
        ("gap", (), r"^\[gap.comp\] bindings must be 0, 1, 2, ... without gaps, got \[0, 2\]$"),
        ("constants", (1 << 20, 1), r"^\[constants.comp\] has workgroups of \(1048576, 1, 1\), the device"),
        ("constants", (1 << 10, 1 << 10), r"^\[constants.comp\] has workgroups of \(1024, 1024, 1\), the"),
    ],
)
def test_programs_that_the_device_cannot_run(
    bench: Bench, name: str, constants: tuple[int, ...], message: str
) -> None:
    with pytest.raises(ShaderError, match=message):
        bench.kernels.program(name, *constants)
