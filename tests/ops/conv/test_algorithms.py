"""The choice between the algorithms of convolution on devices."""

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
from dl4all.ops.core.kernels import autotune
from dl4all.runtime.device_info import DeviceInfo, Limits
from dl4all.runtime.null.backend import NullBackend, describe
from dl4all.scheduler.device.current import device as open_device
from dl4all.scheduler.device.device import Device
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
    """A device with that description, which computes nothing."""
    backend = NullBackend()
    backend.info = info
    return Device.of_backend("null:0", backend)


def conv(
    images: int,
    channels: int,
    filters: int,
    size: int,
    kernel: Any = 3,
    groups: int = 1,
    **window_args: Any,
) -> Problem:
    arguments = {"stride": 1, "padding": 1, "dilation": 1, **window_args}
    win = window("conv2d", (kernel, kernel) if isinstance(kernel, int) else kernel, **arguments)
    out = win.output_size((size, size))
    return Problem(images, channels, filters, groups, (1, size, size), (1, *out), win.three_axes)


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ((1, 64, 64, 56), "winograd4"),
        ((1, 128, 128, 28), "winograd4"),
        ((1, 512, 512, 7), "winograd2"),
        ((8, 512, 512, 7), "winograd4"),
        ((1, 3, 64, 56), "direct"),
        ((1, 32, 32, 5), "direct"),
        ((64, 1, 16, 28), "direct"),
        ((8, 8, 16, 28), "direct"),
    ],
)
def test_choice_on_llvmpipe_follows_measurements(sizes: tuple[int, int, int, int], expected: str) -> None:
    assert default(SOFTWARE, conv(*sizes), "forward") == expected


@pytest.mark.parametrize("images", [1, 8])
def test_the_stem_of_a_resnet_needs_no_columns_on_llvmpipe(images: int) -> None:
    """Its wide rows are read once for 16 filters; deeper layers have too many channels."""
    assert default(SOFTWARE, conv(images, 3, 64, 224, 7, stride=2, padding=3), "forward") == "direct"
    assert default(SOFTWARE, conv(images, 64, 128, 56, stride=2), "forward") == "im2col"
    assert default(SOFTWARE, conv(images, 64, 128, 56, 1, stride=2, padding=0), "forward") == "im2col"


@pytest.mark.parametrize("info", [SOFTWARE, DISCRETE], ids=["software", "discrete"])
def test_winograd_is_chosen_for_large_convolutions(info: DeviceInfo) -> None:
    problem = conv(16, 128, 128, 28)
    assert default(info, problem, "forward") == default(info, problem, "input_gradient") == "winograd4"


def test_gradients_pay_for_transforming_filters() -> None:
    """For one small image with many channels this costs more than all else."""
    problem = conv(1, 512, 512, 7)
    assert default(SOFTWARE, problem, "forward") == "winograd2"
    assert default(SOFTWARE, problem, "input_gradient") == "im2col"


@pytest.mark.parametrize(
    "problem",
    [
        conv(1, 64, 64, 56, stride=2),
        conv(1, 64, 64, 56, dilation=2),
        conv(1, 64, 64, 56, kernel=5),
        conv(1, 64, 64, 56, kernel=1, padding=0),
        conv(1, 64, 64, 56, kernel=(1, 3)),
        conv(1, 64, 64, 56, groups=2),
        conv(1, 5_000, 1, 3),
        conv(1, 64, 64, 56)._replace(size=(2, 56, 56), out_size=(2, 56, 56)),
    ],
)
def test_winograd_supports_plain_3x3_convolutions_only(problem: Problem) -> None:
    strided = set(problem.win.stride) != {1}
    assert candidates(DISCRETE, problem, "forward") == PLAIN
    assert candidates(DISCRETE, problem, "input_gradient") == (PLAIN[:1] if strided else PLAIN)
    assert candidates(DISCRETE, problem, "weight_gradient") == PLAIN[:2]
    with forced("winograd4"):
        assert choose(device(DISCRETE), problem, "forward").name in PLAIN


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_no_tiles_are_transformed_where_somebody_says_so(
    direction: Direction, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = conv(1, 64, 64, 56, padding=1)
    assert set(candidates(DISCRETE, problem, direction)) > set(WINOGRAD)
    monkeypatch.setenv("DL4ALL_WINOGRAD", "0")
    assert set(candidates(DISCRETE, problem, direction)).isdisjoint(WINOGRAD)


@pytest.mark.parametrize("problem", [conv(1, 0, 64, 56), conv(0, 1, 1, 3), conv(1, 1, 0, 3)])
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_only_im2col_supports_empty_problems(problem: Problem, direction: Direction) -> None:
    assert candidates(DISCRETE, problem, direction) == ("im2col",)


def test_im2col_supports_what_exceeds_grids_and_registers() -> None:
    """Because it computes in portions, and keeps nothing of a window."""
    assert candidates(DISCRETE, conv(1, 3, 3, 4000), "forward") == ("im2col", *WINOGRAD)
    assert candidates(DISCRETE, conv(2**20, 1, 1, 2, kernel=1), "forward") == PLAIN[:2]
    wide = conv(1, 2, 4, 99, kernel=(1, 70), padding=0)
    assert candidates(DISCRETE, wide, "forward") == ("im2col", "fft")
    assert candidates(DISCRETE, wide, "weight_gradient") == ("im2col", "fft")


def test_choice_on_gpus() -> None:
    """Implicit GEMM where Winograd's algorithm does not apply."""
    assert default(DISCRETE, conv(8, 64, 128, 56, stride=2), "forward") == "implicit_gemm"
    assert default(DISCRETE, conv(8, 3, 64, 224, kernel=7, stride=2, padding=3), "forward") == "implicit_gemm"
    assert default(DISCRETE, conv(8, 64, 128, 56, kernel=1, padding=0), "forward") == "im2col"
    assert default(DISCRETE, conv(64, 1, 16, 28), "forward") == "direct"


def test_transformed_filters_that_are_too_large_to_bind() -> None:
    problem = conv(8, 1024, 1024, 14)
    assert candidates(DISCRETE, problem, "forward") == (*PLAIN, "winograd2")  # 2**27 bytes at least
    roomy = replace(DISCRETE, limits=replace(Limits(), storage_buffer_range=2**32))
    assert candidates(roomy, problem, "forward") == (*PLAIN, *WINOGRAD)


@pytest.mark.parametrize("name", [name for name in BY_NAME if name != "depthwise"])
def test_an_algorithm_can_be_forced(name: str) -> None:
    problem = conv(1, 64, 64, 56, kernel=7 if name == "fft" else 3)
    opened = device(SOFTWARE)
    with forced(name):
        assert (
            choose(opened, problem, "forward").name == choose(opened, problem, "input_gradient").name == name
        )
    assert choose(opened, problem, "forward").name == default(SOFTWARE, problem, "forward")


@pytest.mark.parametrize("problem", [conv(1, 64, 64, 56), conv(1, 8, 8, 9, groups=8), conv(1, 8, 8, 20, 7)])
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_algorithms_support_only_directions_that_they_have(problem: Problem, direction: Direction) -> None:
    algorithms = supported(SOFTWARE, problem, direction)
    assert len({"im2col", "depthwise"} & {algorithm.name for algorithm in algorithms}) == 1
    for algorithm in algorithms:
        assert getattr(algorithm, direction) is not None
        assert algorithm.shaders[direction]


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_a_problem_can_be_read_from_its_key(direction: Direction) -> None:
    case = Case(direction, conv(3, 5, 7, 11, kernel=(3, 1), stride=(2, 1), padding=(2, 0), dilation=(1, 3)))
    assert _case(SPACE.key(case)) == case


@pytest.mark.vulkan
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize(
    "problem",
    [
        conv(2, 16, 12, 13),
        conv(2, 6, 4, 13, 7, groups=2),
        conv(2, 6, 6, 13, 9, groups=6),
    ],
)
def test_all_candidates_of_the_tuner_compute_the_same(
    problem: Problem, direction: Direction, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need("vulkan:0")
    # Another process's first runs are no sign of a crash.
    monkeypatch.setenv("DL4ALL_CACHE_DIR", str(tmp_path))
    opened = open_device("vulkan:0")
    outcome = autotune.search(SPACE, opened, Case(direction, problem), 60.0)
    assert set(outcome.seconds) | set(outcome.refused) == set(candidates(opened.info, problem, direction))
    assert len(outcome.seconds) > 1
    assert not outcome.refused
