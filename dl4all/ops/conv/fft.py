"""Convolution with large filters on devices: a product of Fourier transforms (Mathieu, Henaff and LeCun).

Images are cut into tiles that overlap by what a filter reaches (overlap-save), padded to powers of two and
transformed, rows first; so are filters and gradients. What is multiplied element by element and transformed
back is the convolution, its input's gradient or that of its filters: the three differ in which of the
transforms are conjugated and what the products are summed up over. Images are real, so half of each transform
is enough.

All functions here take problems with two axes that :func:`possible` says yes to.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, TypeAlias

from dl4all.ops.conv.problem import Problem
from dl4all.ops.core.launch import (
    MAX_GRID_SIZE,
    MAX_LOOP_ROUNDS,
    STRIDED_GRID_CAP,
    ceil_div,
    check_rounds,
    pack,
    run,
    shader,
)
from dl4all.ops.core.op import empty
from dl4all.ops.core.tensor_base import TensorBase
from dl4all.runtime.device_info import DeviceInfo
from dl4all.runtime.protocols import Grid
from dl4all.runtime.spirv import Shader
from dl4all.scheduler.programs import Launch

Pair: TypeAlias = tuple[int, int]  # vertical, horizontal
Ints: TypeAlias = tuple[int, ...]
Codes: TypeAlias = Mapping[tuple[bool, bool], Shader]

ROWS, COLUMNS = (
    {
        (inverse, subgroups): shader(f"conv/fft_{axis}.comp", INVERSE=int(inverse), SUBGROUPS=int(subgroups))
        for inverse in (False, True)
        for subgroups in (False, True)
    }
    for axis in ("rows", "columns")
)
MULTIPLY = shader("conv/fft_multiply.comp")
REPAIR = {turn: shader("conv/fft_repair.comp", PASS=int(turn)) for turn in (False, True)}
WEIGHT_REPAIR = shader("conv/fft_weight_repair.comp")
SHADERS = (*ROWS.values(), *COLUMNS.values(), MULTIPLY)
FORWARD_SHADERS, INPUT_SHADERS = ((*SHADERS, REPAIR[turn]) for turn in (False, True))
WEIGHT_SHADERS = (*SHADERS, WEIGHT_REPAIR)

LONGEST = 1024  # numbers of a transform along one axis
BYTES = 2**25  # of transforms of images, of filters or of products at a time
LEAST_TAPS = 36  # of a filter; there is too little to save on smaller ones
WORKGROUP = 64  # invocations that multiply
TILE = 4  # maps that are multiplied with as many
ROUNDS = 2**15  # of a loop in one launch

# Costs in the units of conv_choice, measured on llvmpipe: to transform one float, for each doubling of the
# length; one term of a sum of products, for each float, and to store it; and to look at a result once more.
TRANSFORM, TERM, SUM, RESULT = 40, 22, 60, 300


class Plan(NamedTuple):
    """How images are cut: along both axes, numbers of a transform, results of a tile, and tiles."""

    size: Pair
    span: Pair
    grid: Pair

    @property
    def pairs(self) -> int:
        """Of complex numbers in a map, the transform of one channel of a tile."""
        return (self.size[1] // 2 + 1) * self.size[0] // 2

    @property
    def nbytes(self) -> int:
        return self.pairs * 16


class Maps(NamedTuple):
    """Channels of images as shaders/conv/fft_rows.comp reads and writes them."""

    channels: int
    size: Pair  # of an image
    shift: Pair
    low: Pair
    high: Pair
    advance: Pair
    grid: Pair  # tiles
    offset: int
    image_step: int
    step: Pair

    @property
    def rows(self) -> Pair:
        """The first of the pairs of rows of a tile that have any element, and how many."""
        first = self.low[0] // 2
        return first, ceil_div(self.high[0], 2) - first

    def part(self, first: int, count: int) -> Maps:
        """So many channels from one on."""
        return self._replace(channels=count, offset=self.offset + first * math.prod(self.size))

    def after(self, images: int) -> Maps:
        return self._replace(offset=self.offset + images * self.image_step)

    def words(self, count: int, first_tile: int) -> bytes:
        across = self.grid[1]
        first, pairs = self.rows
        return pack(
            self.channels, *self.size, *self.shift, *self.low, *self.high, *self.advance,
            across, self.grid[0] * across, self.offset, self.image_step,
            count * self.channels * pairs, pairs, first, first_tile,
        )  # fmt: skip


def possible(info: DeviceInfo, q: Problem, part: str) -> bool:
    """Whether this can compute a problem or one of its gradients."""
    win = q.win
    flat = win.kernel[0] == win.stride[0] == q.size[0] == q.out_size[0] == 1 and win.before[0] == 0
    if not flat or q.taps < LEAST_TAPS or min(q.images, q.channels, q.filters) < 1:
        return False
    if max(_reach(q)) > LONGEST:
        return False
    inner = (q.filters if part == "input" else q.channels) // q.groups  # maps that must be there at once
    _, height, width = win.kernel
    # Of the loops that repair.
    rounds = inner * (height * (ceil_div(width, 4) + 1) + 1)
    if part != "weight" and rounds > MAX_LOOP_ROUNDS and info.driver_id == "mesa_llvmpipe":
        return False
    return inner * plan(q, part).nbytes <= 2 * BYTES


def cost(q: Problem, part: str) -> float:
    """In operations of a matrix product, as :mod:`dl4all.ops.conv.algorithms` counts."""
    return _cost(q, part, plan(q, part))


@functools.lru_cache(maxsize=1024)
def plan(q: Problem, part: str) -> Plan:
    """The cheapest one."""
    extent = (
        q.size[1:]
        if part == "input"
        else tuple((n - 1) * s + 1 for n, s in zip(q.out_size[1:], q.win.stride[1:], strict=True))
    )
    heights, widths = (tuple(_lengths(*both)) for both in zip(_reach(q), extent, strict=True))
    plans = (Plan(*zip(down, right, strict=True)) for down in heights for right in widths)
    return min(plans, key=lambda made: _cost(q, part, made))


def _lengths(reach: int, extent: int) -> Iterator[tuple[int, int, int]]:
    """Along one axis: numbers of a transform, results of a tile, and tiles."""
    length = max(2, 1 << (reach - 1).bit_length())
    while length <= LONGEST:
        span = min(length - reach + 1, extent)
        yield length, span, ceil_div(extent, span)
        if span == extent:
            break
        length *= 2


def _reach(q: Problem) -> Pair:
    """Of a filter with its gaps, along both axes."""
    height, width = (d * (k - 1) + 1 for d, k in zip(q.win.dilation[1:], q.win.kernel[1:], strict=True))
    return height, width


def _cost(q: Problem, part: str, made: Plan) -> float:
    tiles = q.images * math.prod(made.grid)
    filters = q.filters * q.channels // q.groups
    maps = tiles * (q.channels + q.filters) + filters
    terms = tiles * filters
    sums = {"forward": tiles * q.filters, "input": tiles * q.channels, "weight": filters}[part]
    results = {
        "forward": q.images * q.filters * q.pixels,
        "input": q.images * q.channels * q.plane,
        "weight": 0,
    }[part]
    floats = maps * math.log2(math.prod(made.size)) * TRANSFORM + terms * TERM + sums * SUM
    return made.pairs * 4 * floats + results * RESULT


def convolve(
    out: TensorBase, x: TensorBase, w: TensorBase, bias: TensorBase | None, q: Problem, turn: bool = False
) -> None:
    """Fill `out` with the convolution of contiguous tensors.

    Args:
        turn: `x` is the gradient of the results, and `out` that of the input.
    """
    made = plan(q, "input" if turn else "forward")
    reach = _reach(q)
    back = tuple(r - 1 for r in reach)
    if turn:
        inner, outer = q.filters // q.groups, q.channels // q.groups
        shift = _two(r - b for r, b in zip(back, q.win.before[1:], strict=True))
        source = _of_output(q, made, x.offset, shift, made.size)
        target = _of_input(
            q, made, 0, _two(back), _two(back), _two(map(sum, zip(back, made.span, strict=True)))
        )
    else:
        inner, outer = q.channels // q.groups, q.filters // q.groups
        source = _of_input(q, made, x.offset, _two(q.win.before[1:]), (0, 0), made.size)
        target = _of_output(q, made, 0, (0, 0), made.span)
    groups, some, span = _portions(q, made, inner, outer)
    images, weights, products = (
        _maps(out, made, count)
        for count in (span * groups * inner, groups * inner * some, span * groups * some)
    )
    for group, here in _pieces(q.groups, groups):
        given = source.part(group * inner, here * inner)
        ready = -1  # the first of the filters that are transformed
        for first, tiles in _pieces(q.images * math.prod(made.grid), span):
            _forwards(images, x, made, given, tiles, first)
            for column, columns in _pieces(outer, some):
                if ready != column:
                    filters = _of_filters(q, w.offset)
                    if turn:
                        filters = filters.after(group * inner).part(column, columns)
                        count = here * inner
                    else:
                        filters = filters.after(group * outer + column)
                        count = here * columns
                    _forwards(weights, w, made, filters, count, 0)
                    ready = column
                _multiply(
                    products, images, weights, made, (tiles, columns, inner, here),
                    (inner * here, 1, inner),
                    (1, columns, inner * columns) if turn else (inner, 1, inner * columns),
                    (columns * here, 1, columns),
                    conjugate=not turn,
                )  # fmt: skip
                wanted = target.part(group * outer + column, here * columns)
                _backwards(out, products, made, wanted, tiles, first, bias, group * outer + column)
    _repair(out, x, w, bias, q, turn)


def weight_gradient(out: TensorBase, g: TensorBase, x: TensorBase, q: Problem) -> None:
    """Fill `out`, of the weight's shape, from the gradient `g` of the output and the input."""
    made = plan(q, "weight")
    channels, filters = q.channels // q.groups, q.filters // q.groups
    groups, some, span = _portions(q, made, channels, filters)
    images, gradients, products = (
        _maps(out, made, count)
        for count in (span * groups * channels, span * groups * some, groups * channels * some)
    )
    inputs = _of_input(q, made, x.offset, _two(q.win.before[1:]), (0, 0), made.size)
    outputs = _of_output(q, made, g.offset, (0, 0), made.span)
    for group, here in _pieces(q.groups, groups):
        for column, columns in _pieces(filters, some):
            row, rows = group * filters + column, here * columns
            for first, tiles in _pieces(q.images * math.prod(made.grid), span):
                _forwards(images, x, made, inputs.part(group * channels, here * channels), tiles, first)
                _forwards(gradients, g, made, outputs.part(row, rows), tiles, first)
                _multiply(
                    products, images, gradients, made, (channels, columns, tiles, here),
                    (1, channels * here, channels),
                    (1, rows, columns),
                    (1, channels, channels * columns),
                    conjugate=True, more=first > 0,
                )  # fmt: skip
            _backwards(out, products, made, _of_filters(q, 0).after(row), rows, 0, None, 0)
            _repair_weight(out, products, made, g, x, q, row * channels, rows * channels)


def _portions(q: Problem, made: Plan, inner: int, outer: int) -> tuple[int, int, int]:
    """Groups, columns of products in a group, and tiles whose maps are made at a time."""
    most = min(BYTES // made.nbytes, MAX_GRID_SIZE)
    groups = max(1, min(q.groups, most // (inner * outer)))
    some = max(1, min(outer, most // inner))
    tiles = q.images * math.prod(made.grid)
    return groups, some, max(1, min(tiles, most // (groups * max(inner, some))))


def _pieces(count: int, most: int) -> Iterator[tuple[int, int]]:
    """Where each of the pieces of at most so many begins, and its size."""
    for first in range(0, count, most):
        yield first, min(most, count - first)


def _maps(like: TensorBase, made: Plan, count: int) -> TensorBase:
    found: TensorBase = empty(type(like), (count, made.pairs, 4), like.dtype, like.device)
    return found


def _two(numbers: Iterable[int]) -> Pair:
    first, second = numbers
    return first, second


def _of_input(q: Problem, made: Plan, offset: int, shift: Pair, low: Pair, high: Pair) -> Maps:
    return Maps(
        q.channels, _two(q.size[1:]), shift, low, high, made.span, made.grid, offset,
        q.channels * q.plane, (1, 1),
    )  # fmt: skip


def _of_output(q: Problem, made: Plan, offset: int, shift: Pair, high: Pair) -> Maps:
    return Maps(
        q.filters, _two(q.out_size[1:]), shift, (0, 0), high, made.span, made.grid, offset,
        q.filters * q.pixels, _two(q.win.stride[1:]),
    )  # fmt: skip


def _of_filters(q: Problem, offset: int) -> Maps:
    """A filter is an image of one tile."""
    return Maps(
        q.channels // q.groups, _two(q.win.kernel[1:]), (0, 0), (0, 0), _reach(q), (0, 0), (1, 1), offset,
        q.inner, _two(q.win.dilation[1:]),
    )  # fmt: skip


# Launches


def _forwards(out: TensorBase, x: TensorBase, made: Plan, source: Maps, count: int, first: int) -> None:
    """The transforms of `count` tiles from `first` on."""
    _rows(False, made, source, count, source.words(count, first), x, out)
    _columns(False, made, count * source.channels, source.rows[1], out)


def _backwards(
    out: TensorBase,
    products: TensorBase,
    made: Plan,
    target: Maps,
    count: int,
    first: int,
    bias: TensorBase | None,
    row: int,
) -> None:
    """What `count` tiles from `first` on were transformed from; `row` is the first of the biases."""
    _columns(True, made, count * target.channels, made.size[0] // 2, products)
    extra = (0, 0) if bias is None else (1, bias.offset + row)
    push = target.words(count, first) + pack(1 / math.prod(made.size), *extra)
    _rows(True, made, target, count, push, products, products if bias is None else bias, out)


def _rows(inverse: bool, made: Plan, maps: Maps, count: int, push: bytes, *tensors: TensorBase) -> None:
    height, width = made.size
    rows = count * maps.channels * maps.rows[1]
    _transform(ROWS, inverse, width, rows, push, (height, *maps.step), *tensors)


def _columns(inverse: bool, made: Plan, maps: int, pairs: int, out: TensorBase) -> None:
    height, width = made.size
    columns = maps * (width // 2 + 1)
    _transform(COLUMNS, inverse, height, columns, pack(columns, pairs), (), out)


def _transform(
    codes: Codes, inverse: bool, length: int, count: int, push: bytes, constants: Ints, *tensors: TensorBase
) -> None:
    """Launch a kernel of `count` transforms."""
    device = tensors[0].device
    subgroups = device.info.short_subgroups
    size, widest = (16, 8) if subgroups else (128, 128)
    groups = ceil_div(count, size // max(1, min(length // 8, widest)))
    steps = length.bit_length() - 1
    launch = Launch(
        codes[inverse, subgroups], _grid(groups), push, (steps, *constants), 5 * count * length * steps
    )
    device.launch(launch, *(tensor.storage for tensor in tensors))


def _multiply(
    out: TensorBase,
    a: TensorBase,
    b: TensorBase,
    made: Plan,
    sizes: tuple[int, int, int, int],
    a_steps: Ints,
    b_steps: Ints,
    out_steps: Ints,
    *,
    conjugate: bool,
    more: bool = False,
) -> None:
    """Sums of products of maps.

    Args:
        sizes: rows, columns, terms of a sum, and groups.
        a_steps, b_steps: from one row or column to the next, from one term, and from one group.
        out_steps: from one row, from one column, and from one group.
        more: add to what `out` holds.
    """
    rows, columns, inner, groups = sizes
    tile = min(rows, TILE), min(columns, TILE)
    push = pack(
        made.pairs, rows, columns, inner, *a_steps, *b_steps, *out_steps, more, 1.0 if conjugate else -1.0
    )
    grid = (
        ceil_div(made.pairs, WORKGROUP),
        ceil_div(rows, tile[0]),
        ceil_div(columns, tile[1]) * groups,
    )
    check_rounds(out.device, inner)
    launch = Launch(MULTIPLY, grid, push, tile, 16 * rows * columns * inner * groups * made.pairs)
    out.device.launch(launch, a.storage, b.storage, out.storage)


def _repair(
    out: TensorBase, x: TensorBase, w: TensorBase, bias: TensorBase | None, q: Problem, turn: bool
) -> None:
    extra = (0, 0) if bias is None else (1, bias.offset)
    others = (x, w) if turn else (x, w, x if bias is None else bias)
    push = pack(*_words(q), out.numel(), x.offset, w.offset, *extra)
    run(REPAIR[turn], _grid(ceil_div(out.numel(), WORKGROUP)), push, *others, out)


def _repair_weight(
    out: TensorBase,
    products: TensorBase,
    made: Plan,
    g: TensorBase,
    x: TensorBase,
    q: Problem,
    filter_: int,
    count: int,
) -> None:
    """Of `count` filters' channels from one on, whose transforms `products` begins with."""
    elements, pixels = count * q.taps, q.images * q.pixels
    for first, some in _pieces(pixels, ROUNDS):
        push = pack(*_words(q), filter_ * q.taps, elements, made.pairs * 4, first, some, g.offset, x.offset)
        run(WEIGHT_REPAIR, _grid(ceil_div(elements, WORKGROUP)), push, products, g, x, out)


def _grid(groups: int) -> Grid:
    return min(groups, STRIDED_GRID_CAP), ceil_div(groups, STRIDED_GRID_CAP), 1


def _words(q: Problem) -> Ints:
    win = q.win
    return (
        *win.kernel[1:], *win.stride[1:], *win.before[1:], *win.dilation[1:], *q.size[1:], *q.out_size[1:],
        q.groups, q.channels // q.groups, q.filters // q.groups,
    )  # fmt: skip
