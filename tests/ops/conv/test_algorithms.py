"""Which algorithm is chosen for a convolution."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dl4all.ops.conv.algorithms import (
    BY_NAME,
    SPACE,
    Case,
    _case,
    cheapest,
    choose,
    forced,
    supported,
)
from dl4all.ops.conv.problem import Direction, Problem
from dl4all.ops.conv.window import window
from dl4all.ops.core import autotune
from dl4all.runtime.device_info import DeviceInfo, Limits
from dl4all.runtime.null.backend import NullBackend, describe
from dl4all.scheduler.device import Device
from dl4all.scheduler.device import device as open_device
from tests.conftest import need
from tests.ops.test_on_null import KINDS

SOFTWARE = KINDS["shuffle and int64"][0]
DISCRETE = replace(describe(), type="discrete")
PLAIN = ("im2col", "direct", "implicit_gemm")
WINOGRAD = ("winograd2", "winograd4")
DIRECTIONS: tuple[Direction, ...] = ("forward", "input_gradient", "weight_gradient")


def default(info: DeviceInfo, problem: Problem, direction: Direction) -> str:
    return cheapest(info, problem, direction).name


def candidates(info: DeviceInfo, problem: Problem, direction: Direction) -> tuple[str, ...]:
    return tuple(algorithm.name for algorithm in supported(info, problem, direction))


def device(info: DeviceInfo) -> Device:
    """One that computes nothing and is described like that."""
    backend = NullBackend()
    backend.info = info
    return Device("null:0", backend)


def problem(
    images: int, channels: int, filters: int, size: int, kernel: Any = 3, groups: int = 1, **more: Any
) -> Problem:
    given = {"stride": 1, "padding": 1, "dilation": 1, **more}
    win = window("conv2d", (kernel, kernel) if isinstance(kernel, int) else kernel, **given)
    out = win.output_size((size, size))
    return Problem(images, channels, filters, groups, (1, size, size), (1, *out), win.three_axes)


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ((1, 64, 64, 56), "winograd4"),
        ((1, 128, 128, 28), "winograd4"),
        ((1, 512, 512, 7), "winograd2"),
        ((8, 512, 512, 7), "winograd4"),
        ((1, 3, 64, 56), "im2col"),
        ((1, 32, 32, 5), "direct"),
        ((64, 1, 16, 28), "direct"),
        ((8, 8, 16, 28), "direct"),
    ],
)
def test_what_was_fastest_on_llvmpipe_is_chosen(sizes: tuple[int, int, int, int], expected: str) -> None:
    assert default(SOFTWARE, problem(*sizes), "forward") == expected


@pytest.mark.parametrize("info", [SOFTWARE, DISCRETE], ids=["software", "discrete"])
def test_large_convolutions_are_winograds(info: DeviceInfo) -> None:
    q = problem(16, 128, 128, 28)
    assert default(info, q, "forward") == default(info, q, "input_gradient") == "winograd4"


def test_filters_are_transformed_for_each_gradient() -> None:
    """That is more than the rest for one small image with many channels."""
    q = problem(1, 512, 512, 7)
    assert default(SOFTWARE, q, "forward") == "winograd2"
    assert default(SOFTWARE, q, "input_gradient") == "im2col"


@pytest.mark.parametrize(
    "q",
    [
        problem(1, 64, 64, 56, stride=2),
        problem(1, 64, 64, 56, dilation=2),
        problem(1, 64, 64, 56, kernel=5),
        problem(1, 64, 64, 56, kernel=1, padding=0),
        problem(1, 64, 64, 56, kernel=(1, 3)),
        problem(1, 64, 64, 56, groups=2),
        problem(1, 5_000, 1, 3),
        problem(1, 64, 64, 56)._replace(size=(2, 56, 56), out_size=(2, 56, 56)),
    ],
)
def test_the_rest_is_not_winograds(q: Problem) -> None:
    strided = set(q.win.stride) != {1}
    assert candidates(DISCRETE, q, "forward") == PLAIN
    assert candidates(DISCRETE, q, "input_gradient") == (PLAIN[:1] if strided else PLAIN)
    assert candidates(DISCRETE, q, "weight_gradient") == PLAIN[:2]
    with forced("winograd4"):
        assert choose(device(DISCRETE), q, "forward").name in PLAIN


@pytest.mark.parametrize("q", [problem(1, 0, 64, 56), problem(0, 1, 1, 3), problem(1, 1, 0, 3)])
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_only_im2col_takes_nothing(q: Problem, direction: Direction) -> None:
    assert candidates(DISCRETE, q, direction) == ("im2col",)


def test_what_does_not_fit_a_grid_is_unrolled() -> None:
    """Or what does not fit registers: im2col goes by portions."""
    assert candidates(DISCRETE, problem(1, 3, 3, 4000), "forward") == ("im2col", *WINOGRAD)
    assert candidates(DISCRETE, problem(2**20, 1, 1, 2, kernel=1), "forward") == PLAIN[:2]
    wide = problem(1, 2, 4, 99, kernel=(1, 70), padding=0)
    assert candidates(DISCRETE, wide, "forward") == ("im2col", "implicit_gemm", "fft")
    assert candidates(DISCRETE, wide, "weight_gradient") == ("im2col", "fft")


def test_what_suits_gpus() -> None:
    """Where Winograd's algorithm does not apply windows are unrolled as they are multiplied."""
    assert default(DISCRETE, problem(8, 64, 128, 56, stride=2), "forward") == "implicit_gemm"
    assert (
        default(DISCRETE, problem(8, 3, 64, 224, kernel=7, stride=2, padding=3), "forward") == "implicit_gemm"
    )
    assert default(DISCRETE, problem(8, 64, 128, 56, kernel=1, padding=0), "forward") == "im2col"
    assert default(DISCRETE, problem(64, 1, 16, 28), "forward") == "direct"


def test_transformed_filters_that_are_too_large_to_bind() -> None:
    q = problem(8, 1024, 1024, 14)
    assert candidates(DISCRETE, q, "forward") == (*PLAIN, "winograd2")  # 2**27 bytes at least
    roomy = replace(DISCRETE, limits=replace(Limits(), storage_buffer_range=2**32))
    assert candidates(roomy, q, "forward") == (*PLAIN, *WINOGRAD)


@pytest.mark.parametrize("name", [name for name in BY_NAME if name != "depthwise"])
def test_an_algorithm_can_be_forced(name: str) -> None:
    q = problem(1, 64, 64, 56, kernel=7 if name == "fft" else 3)
    place = device(SOFTWARE)
    with forced(name):
        assert choose(place, q, "forward").name == choose(place, q, "input_gradient").name == name
    assert choose(place, q, "forward").name == default(SOFTWARE, q, "forward")


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_a_problem_can_be_read_from_its_key(direction: Direction) -> None:
    case = Case(
        direction, problem(3, 5, 7, 11, kernel=(3, 1), stride=(2, 1), padding=(2, 0), dilation=(1, 3))
    )
    assert _case(SPACE.key(case)) == case


@pytest.mark.vulkan
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize(
    "q", [problem(2, 16, 12, 13), problem(2, 6, 4, 13, 7, groups=2), problem(2, 6, 6, 13, 9, groups=6)]
)
def test_what_is_tuned_computes_the_same(
    q: Problem, direction: Direction, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need("vulkan:0")
    # Another process's first runs are no sign of a crash.
    monkeypatch.setenv("DL4ALL_CACHE_DIR", str(tmp_path))
    place = open_device("vulkan:0")
    found = autotune.search(SPACE, place, Case(direction, q), 60.0)
    assert set(found.seconds) | set(found.refused) == set(candidates(place.info, q, direction))
    assert len(found.seconds) > 1
    assert not found.refused
