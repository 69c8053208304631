"""Which algorithm computes a convolution.

The choice follows from sizes alone, so that the same network gives the same bits every time, unless somebody
asks for what is measured to be the fastest (:mod:`dl4all.ops.core.autotune`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

from dl4all.ops.conv import direct, fft
from dl4all.ops.conv.problem import Problem
from dl4all.ops.conv.window import Window
from dl4all.ops.core import autotune
from dl4all.ops.core.launch import ceil_div
from dl4all.ops.core.tensor_base import TensorBase
from dl4all.ops.linalg.gemm import NARROW, PANEL, PLAIN
from dl4all.runtime.device_info import DeviceInfo
from dl4all.scheduler.device import Device

Part = Literal["forward", "input", "weight"]
"""The convolution itself, or the gradient of its input or its filters."""

TILES = {"winograd2": 2, "winograd4": 4}
"""Winograd's algorithms, and how many results along each side of a tile they compute at once."""

FOURIER = "fourier"
CANDIDATES = ("im2col", "direct", "implicit", *TILES, FOURIER)

# Costs are counted in floating point operations of a matrix product: what else is done to a float was
# measured on llvmpipe to take as long as so many of them (docs/performance.md). With about 30 operations in
# the time of a byte, as GPUs have it, a float that is written and read again is worth as much.
FLOAT = 100  # to find, and write where the product reads it
GATHERED = 250  # of columns, summed up into the gradient of the input
READ = 20  # of filters that are there
FILTER = {"forward": READ, "input": 200, "weight": 400}  # transformed, and filled with small products
TURNED = 2  # how much longer a product takes whose first operand is read across its rows
DEPTHWISE = {"forward": 90, "input": 110, "weight": 350}  # an element of a window by a kernel of its own,
DEPTHWISE_CACHED = 10  # or where what neighbours read is in a cache
CLEARLY = 1.5  # times faster must transforms be, which lose more digits of small results beside large ones
LAUNCH = 3e6
RESULT = 30  # to write
TERM = 3  # to multiply and add up, for what reads its operands itself,
DEEP = 1024  # twice that where so long filters do not stay in the nearest cache
MET = 45  # of an image's row, to find and keep in a register
SUMMED = 1.3  # how much longer these take for the gradient of the filters
CACHED = 20  # to find where it is multiplied, by way of shared memory
UNSHARED = 15  # how much longer a product takes by way of shared memory where there is none

MOST_CHANNELS = 4000  # times 16 results of a tile: llvmpipe leaves a kernel's loops after 65535 rounds

_forced: list[str] = []


def candidates(info: DeviceInfo, q: Problem, part: Part) -> tuple[str, ...]:
    """Those of :data:`CANDIDATES` that can do it."""
    here = q.turned if part == "input" else q
    fits = {"im2col": True, FOURIER: fft.possible(info, q, part)}
    if q.depthwise:  # of which im2col stands for a kernel of its own
        pass
    elif part == "weight":
        fits["direct"] = direct.can_direct_weight(q)
    elif part == "forward" or set(q.win.stride) == {1}:
        fits["direct"], fits["implicit"] = direct.can_direct(here), direct.can_implicit(here)
    for name, tile in TILES.items():
        fits[name] = _can_winograd(info, here, tile)
    return tuple(name for name in CANDIDATES if fits.get(name))


def _can_winograd(info: DeviceInfo, q: Problem, tile: int) -> bool:
    fits = (
        q.win.kernel == (1, 3, 3)
        and set(q.win.stride) == set(q.win.dilation) == {1}
        and q.groups == 1
        and q.size[0] == q.out_size[0] == 1
        and min(q.images, q.channels, q.filters) > 0
        and max(q.channels, q.filters) <= MOST_CHANNELS
    )
    # The largest of the matrices that are made, even for a few tiles at a time.
    matrix = max(q.filters * (q.channels + 3), max(q.channels, q.filters) * PANEL)
    return fits and (tile + 2) ** 2 * matrix <= info.limits.storage_buffer_range // 4


def default(info: DeviceInfo, q: Problem, part: Part) -> str:
    """The one of :func:`candidates` that is likely to be the fastest."""
    names = candidates(info, q, part)
    return min(names, key=lambda name: _cost(info, q, part, name)) if len(names) > 1 else names[0]


def _cost(info: DeviceInfo, q: Problem, part: Part, name: str) -> float:
    if name == "im2col" and q.depthwise:
        tap = DEPTHWISE[part] if info.type == "software" else DEPTHWISE_CACHED
        return q.images * q.filters * q.pixels * q.taps * tap + LAUNCH
    if name == "im2col":
        return q.images * q.groups * _im2col(info, q, part) + 2 * LAUNCH
    if name == FOURIER:
        return CLEARLY * fft.cost(q, part) + 8 * LAUNCH
    if name == "direct" and part == "weight":
        return _direct_weight(q) + 2 * LAUNCH
    q = q.turned if part == "input" else q
    if name == "direct":
        return _direct(q) + LAUNCH
    if name == "implicit":
        return _implicit(info, q) + LAUNCH
    tile = TILES[name]
    tiles = q.tiles(tile)
    columns, inner = (q.channels, tiles) if part == "weight" else (tiles, q.channels)
    product = _product(info, q.filters, columns, inner)
    # The filters of a network that is not trained are transformed before.
    moved = FLOAT * (q.channels + q.filters) * tiles + FILTER[part] * q.channels * q.filters
    return (tile + 2) ** 2 * (product + moved) + 4 * LAUNCH


def _im2col(info: DeviceInfo, q: Problem, part: Part) -> float:
    """Of one image's group."""
    filters = q.filters // q.groups
    columns, weights = q.inner * q.pixels, filters * q.inner
    moved = 0 if q.win.moves_nothing else columns
    if part == "forward":
        product = _product(info, filters, q.pixels, q.inner) + RESULT * filters * q.pixels
        return product + FLOAT * moved + READ * weights / q.images
    if part == "input":
        return TURNED * _product(info, q.inner, q.pixels, filters) + GATHERED * moved
    return _product(info, filters, q.inner, q.pixels) + FLOAT * moved + FILTER[part] * weights


def _direct(q: Problem) -> float:
    filters = q.filters // q.groups
    some = direct.block(filters)
    blocks = q.images * q.groups * ceil_div(filters, some) * direct.fours(q)
    rows = q.inner // q.win.kernel[2]
    terms = some * direct.FOUR * q.inner * (1 if q.inner <= DEEP else 2)
    return blocks * (TERM * terms + MET * rows * direct.span(q)) + RESULT * q.images * q.filters * q.pixels


def _implicit(info: DeviceInfo, q: Problem) -> float:
    filters, columns = q.filters // q.groups, q.images * q.pixels
    product = _product(info, filters, columns, q.inner)
    found = CACHED * ceil_div(filters, direct.ROWS) * columns * q.inner
    shared = UNSHARED if info.type == "software" else 1
    return q.groups * (shared * product + found + RESULT * filters * columns)


def _direct_weight(q: Problem) -> float:
    filters = q.filters // q.groups
    some, rows = direct.sums(q)
    blocks = q.groups * ceil_div(filters, some) * q.inner // (rows * q.win.kernel[2])
    met = some * direct.FOUR + rows * direct.span(q)
    terms = some * direct.FOUR * rows * q.win.kernel[2]
    return SUMMED * q.images * direct.fours(q) * blocks * (TERM * terms + MET * met)


def _product(info: DeviceInfo, rows: int, columns: int, inner: int) -> float:
    """What a matrix product takes, in whole tiles."""
    wide, narrow = (PANEL, NARROW.columns) if info.type == "software" else (PLAIN.columns, PLAIN.columns)
    # A narrow tile takes two thirds of a wide one's time.
    whole = min(ceil_div(columns, wide), ceil_div(columns, narrow) * 2 / 3 if narrow < wide else columns)
    return 2 * ceil_div(rows, PLAIN.rows) * PLAIN.rows * whole * wide * inner


class Case(NamedTuple):
    """A convolution or one of its gradients."""

    part: Part
    q: Problem


def chosen(device: Device, q: Problem, part: Part) -> str:
    """The algorithm to use: that of :func:`forced` where it can do it, what was tuned, or the default."""
    if _forced and _forced[-1] in candidates(device.info, q, part):
        return _forced[-1]
    return autotune.choose(SPACE, device, Case(part, q))


@contextlib.contextmanager
def forced(name: str) -> Iterator[None]:
    """Within, use this algorithm for all convolutions that it can do."""
    _forced.append(name)
    try:
        yield
    finally:
        _forced.pop()


# Tuning

Run = Callable[[TensorBase, TensorBase, TensorBase, Problem], None]
RUNS: dict[str, Run] = {}
"""What computes each part from its two operands; those who can do it say so."""


def _key(case: Case) -> tuple[int | str, ...]:
    """Every size: which algorithm is the fastest changes too fast for classes."""
    q = case.q
    return (case.part, q.images, q.channels, q.filters, q.groups, *q.size, *q.out_size, *q.win.words,
            *q.win.behind)  # fmt: skip


def _case(key: Sequence[Any]) -> Case:
    part, images, channels, filters, groups, *rest = key
    size, out_size, kernel, stride, before, dilation, behind = (
        tuple(rest[first : first + 3]) for first in range(0, len(rest), 3)
    )
    win = Window(kernel, stride, before, behind, dilation)
    return Case(part, Problem(images, channels, filters, groups, size, out_size, win))


def _rule(info: DeviceInfo, key: tuple[int | str, ...]) -> tuple[str, ...]:
    part, q = _case(key)
    return (default(info, q, part), CANDIDATES[0])


def _fits(device: Device, name: str, key: tuple[int | str, ...]) -> bool:
    part, q = _case(key)
    return name in candidates(device.info, q, part)


def _prepare(device: Device, case: Case) -> autotune.Work[str]:
    part, q = case
    x = autotune.uninitialized(device, q.images, q.channels, *q.size)
    w = autotune.uninitialized(device, q.filters, q.channels // q.groups, *q.win.kernel)
    g = autotune.uninitialized(device, q.images, q.filters, *q.out_size)
    out, first, second = {"forward": (g, x, w), "input": (x, g, w), "weight": (w, g, x)}[part]

    def run(name: str) -> None:
        with forced(name):
            RUNS[part](out, first, second, q)

    return autotune.Work(run, out)


def _layer(
    part: Part, images: int, channels: int, filters: int, size: int, kernel: int = 3, groups: int = 1
) -> Case:
    plane, ones = (1, size, size), (1, 1, 1)
    pad = (0, kernel // 2, kernel // 2)
    win = Window((1, kernel, kernel), ones, pad, pad, ones)
    return Case(part, Problem(images, channels, filters, groups, plane, plane, win))


LAYERS = ((64, 56), (128, 28), (256, 14), (512, 7))
PROBLEMS = (
    *((f"ResNet-18, {c} of {s} x {s}", _layer("forward", 1, c, c, s)) for c, s in LAYERS),
    *((f"the same, 8 images, {c}", _layer("forward", 8, c, c, s)) for c, s in LAYERS),
    *((f"its input's gradient, {c}", _layer("input", 8, c, c, s)) for c, s in LAYERS),
    *((f"its filters' gradient, {c}", _layer("weight", 8, c, c, s)) for c, s in LAYERS),
    ("depthwise 7x7, 96 of 56 x 56", _layer("forward", 8, 96, 96, 56, 7, 96)),
    ("11x11, 32 of 56 x 56", _layer("forward", 8, 32, 32, 56, 11)),
)
SPACE = autotune.declare(
    autotune.Space("conv", {name: name for name in CANDIDATES}, _key, _rule, _fits, _prepare, PROBLEMS)
)
