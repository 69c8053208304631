"""The algorithms of convolution on devices, and the choice between them.

The choice follows from sizes alone, so that the same network gives the same bits every time, unless the user
asks for the algorithm that is measured to be the fastest (:mod:`dl4all.ops.core.kernels.autotune`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from dl4all.ops.conv import depthwise, direct, fft, im2col, implicit_gemm, winograd
from dl4all.ops.conv.problem import Algorithm, Direction, Problem
from dl4all.ops.conv.slots import sum_slots
from dl4all.ops.conv.window import Window
from dl4all.ops.core.dtypes import FLOAT32
from dl4all.ops.core.kernels import autotune
from dl4all.ops.core.op import empty
from dl4all.ops.core.tensor_base import TensorBase
from dl4all.runtime.device_info import DeviceInfo
from dl4all.runtime.scopes import ScopedSetting, assigned
from dl4all.runtime.spirv import Shader
from dl4all.scheduler import listeners
from dl4all.scheduler.device.device import Device
from dl4all.scheduler.monitor.counters import forget_plans

ALGORITHMS = (
    im2col.ALGORITHM,
    depthwise.ALGORITHM,
    direct.ALGORITHM,
    implicit_gemm.ALGORITHM,
    *winograd.ALGORITHMS,
    fft.ALGORITHM,
)
"""In the order that decides between equal costs. im2col or depthwise supports every problem."""

BY_NAME = {algorithm.name: algorithm for algorithm in ALGORITHMS}

ONE_KERNEL = ("direct", "implicit_gemm", "depthwise")
"""Algorithms whose forward pass and input's gradient are one dispatch."""

_forced: list[Algorithm] = []
_one_kernel: ScopedSetting[bool] = ScopedSetting(False)


def preferring_one_kernel() -> contextlib.AbstractContextManager[None]:
    """Within, this thread takes algorithms of one dispatch on GPUs, where there are some.

    For networks so small that launches take longer than what they compute.
    """
    return assigned(_one_kernel, True)


def forward(out: TensorBase, x: TensorBase, w: TensorBase, bias: TensorBase | None, problem: Problem) -> None:
    """Fill `out` with the convolution of contiguous tensors."""
    _run("forward", problem, out, x, w, bias)


def input_gradient(out: TensorBase, g: TensorBase, w: TensorBase, problem: Problem) -> None:
    """Fill `out`, of the input's shape, from the gradient `g` of the output."""
    _run("input_gradient", problem, out, g, w)


def weight_gradient(out: TensorBase, g: TensorBase, x: TensorBase, problem: Problem) -> None:
    """Fill `out`, of the weight's shape, from the gradient `g` of the output and the input."""
    if problem.images == 0:
        sum_slots(out, empty(type(out), (1,), FLOAT32, out.device), out.numel(), 0, 0)  # zeros
        return
    _run("weight_gradient", problem, out, g, x)


def _run(direction: Direction, problem: Problem, out: TensorBase, *operands: TensorBase | None) -> None:
    algorithm = choose(out.device, problem, direction)
    getattr(algorithm, direction)(out, *operands, problem)


def shaders(direction: Direction) -> tuple[Shader, ...]:
    """All shaders that a direction may launch."""
    codes = (code for algorithm in ALGORITHMS for code in algorithm.shaders.get(direction, ()))
    return tuple(dict.fromkeys(codes))


def supported(info: DeviceInfo, problem: Problem, direction: Direction) -> list[Algorithm]:
    """The algorithms that can compute a problem."""
    return [algorithm for algorithm in ALGORITHMS if algorithm.supports(info, problem, direction)]


def cheapest(info: DeviceInfo, problem: Problem, direction: Direction) -> Algorithm:
    """The algorithm that is likely to be the fastest."""
    choices = supported(info, problem, direction)
    if len(choices) == 1:
        return choices[0]
    return min(choices, key=lambda algorithm: algorithm.cost(info, problem, direction))


def choose(device: Device, problem: Problem, direction: Direction) -> Algorithm:
    """The algorithm to use: the one of :func:`forced` where it fits, what was tuned, or the cheapest."""
    if _forced or _one_kernel.value:
        listeners.unplanned()
    if _forced and _forced[-1].supports(device.info, problem, direction):
        return _forced[-1]
    if _one_kernel.value and device.info.type != "software":  # there it would compute for much longer
        choices = [a for a in supported(device.info, problem, direction) if a.name in ONE_KERNEL]
        if choices:
            return min(choices, key=lambda algorithm: algorithm.cost(device.info, problem, direction))
    return BY_NAME[autotune.choose(SPACE, device, Case(direction, problem))]


@contextlib.contextmanager
def forced(name: str) -> Iterator[None]:
    """Within, use this algorithm for all convolutions that it supports."""
    _forced.append(BY_NAME[name])
    forget_plans()
    try:
        yield
    finally:
        _forced.pop()


# Tuning


class Case(NamedTuple):
    """A convolution or one of its gradients, as the tuner's problem."""

    direction: Direction
    problem: Problem


def _key(case: Case) -> tuple[int | str, ...]:
    """Every size: the fastest algorithm changes too quickly with the sizes for classes of problems."""
    direction, problem = case
    return (
        direction, problem.images, problem.channels, problem.filters, problem.groups,
        *problem.size, *problem.out_size, *problem.win.words, *problem.win.behind,
    )  # fmt: skip


def _case(key: Sequence[Any]) -> Case:
    """The case that a key was made of."""
    direction, images, channels, filters, groups, *rest = key
    size, out_size, kernel, stride, before, dilation, behind = (
        tuple(rest[first : first + 3]) for first in range(0, len(rest), 3)
    )
    win = Window(kernel, stride, before, behind, dilation)
    return Case(direction, Problem(images, channels, filters, groups, size, out_size, win))


def _rule(info: DeviceInfo, key: tuple[int | str, ...]) -> tuple[str, ...]:
    direction, problem = _case(key)
    return (cheapest(info, problem, direction).name,)


def _fits(device: Device, name: str, key: tuple[int | str, ...]) -> bool:
    direction, problem = _case(key)
    return BY_NAME[name].supports(device.info, problem, direction)


def _prepare(device: Device, case: Case) -> autotune.Work[str]:
    direction, problem = case
    x = autotune.uninitialized(device, problem.images, problem.channels, *problem.size)
    filters = (problem.filters, problem.channels // problem.groups, *problem.win.kernel)
    w = autotune.uninitialized(device, *filters)
    g = autotune.uninitialized(device, problem.images, problem.filters, *problem.out_size)
    out, *operands = {
        "forward": (g, x, w, None),
        "input_gradient": (x, g, w),
        "weight_gradient": (w, g, x),
    }[direction]

    def run(name: str) -> None:
        getattr(BY_NAME[name], direction)(out, *operands, problem)

    return autotune.Work(run, out)


def _layer(
    direction: Direction,
    images: int,
    channels: int,
    filters: int,
    size: int,
    kernel: int = 3,
    groups: int = 1,
) -> Case:
    plane, ones = (1, size, size), (1, 1, 1)
    padding = (0, kernel // 2, kernel // 2)
    win = Window((1, kernel, kernel), ones, padding, padding, ones)
    return Case(direction, Problem(images, channels, filters, groups, plane, plane, win))


LAYERS = ((64, 56), (128, 28), (256, 14), (512, 7))  # channels and pixels along a side
PROBLEMS = (
    *((f"ResNet-18, {c} of {s} x {s}", _layer("forward", 1, c, c, s)) for c, s in LAYERS),
    *((f"the same, 8 images, {c}", _layer("forward", 8, c, c, s)) for c, s in LAYERS),
    *((f"its input's gradient, {c}", _layer("input_gradient", 8, c, c, s)) for c, s in LAYERS),
    *((f"its filters' gradient, {c}", _layer("weight_gradient", 8, c, c, s)) for c, s in LAYERS),
    ("depthwise 7x7, 96 of 56 x 56", _layer("forward", 8, 96, 96, 56, 7, 96)),
    ("11x11, 32 of 56 x 56", _layer("forward", 8, 32, 32, 56, 11)),
)
SPACE = autotune.declare(
    autotune.TuningSpace("conv", {name: name for name in BY_NAME}, _key, _rule, _fits, _prepare, PROBLEMS)
)
