"""Columns of images: what the elements of filters meet at some places of results, side by side.

The result of a convolution has three axes (some of size 1). At place o along an axis, element k of a filter
meets place ``o * step + offset + k * delta`` of the image, or a zero outside of it. For a convolution these
numbers are its stride, minus its padding and its dilation. For the gradient of an input they are 1, the
padding and minus the dilation.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from dl4all.ops.core.tensor_base import Shape
from dl4all.ops.host_kernels.dot_tiles import vector_lanes
from dl4all.runtime.cpu.llvm.ir import Code, Module, Value, element_of, lanes_of, vector

MOST_STEPS = 2
"""Steps along the last axis for which neighbours are found by shuffles; beyond, each is read by itself."""


class Columns(NamedTuple):
    """Which columns images have; three axes each. Slots of a kernel hold these numbers in this order."""

    strides: tuple[int, int, int, int, int]  # of the images in memory: image, channel, and the axes
    size: Shape  # of an image
    out_size: Shape  # of a result
    taps: Shape  # elements of filters
    step: Shape
    offset: Shape
    delta: Shape

    @property
    def numbers(self) -> list[int]:
        return [number for part in self for number in part]

    @property
    def places(self) -> int:
        """Of a result."""
        return math.prod(self.out_size)

    @property
    def rows(self) -> int:
        """Rows of columns for a channel."""
        return math.prod(self.taps)

    @property
    def neighbours(self) -> int:
        """How far neighbouring places meet elements apart in memory; 0 for more than :data:`MOST_STEPS`."""
        step = self.step[2] * self.strides[4]
        return step if self.strides[4] == 1 and 1 <= step <= MOST_STEPS else 0


class Line(NamedTuple):
    """A row of things: the first, the end, the step, and a distance in memory."""

    first: Value
    end: Value
    step: Value
    distance: Value


NUMBERS = 5 + 6 * 3

PARAMETERS = ("ptr", "ptr", "i64", "i64", "i64")


def columns_function(module: Module, first: int, neighbours: int, element: str, pitch: int) -> Code:
    """A function that writes columns.

    Its parameters are the slots, the images' address (of the first channel that is asked for), the address of
    the columns, the first place (counted on from image to image), the number of places, and the number of
    channels. Columns have a row for each element of a filter, channel by channel, `pitch` numbers apart; up
    to a vector more is written behind the places.

    Args:
        module: gets the function.
        first: the slot of the first of :attr:`Columns.numbers`.
        neighbours: see :attr:`Columns.neighbours`.
        element: the type of numbers.
        pitch: distance of the rows.
    """
    lanes = vector_lanes(element)
    type = vector(element, lanes)
    with module.function("columns", "ptr", *PARAMETERS) as code:
        _, x, out, begin, count, channels = code.parameters
        numbers = [code.slot(first + i) for i in range(NUMBERS)]
        image, channel, *strides = numbers[:5]
        size, out_size, taps, step, offset, delta = (numbers[i : i + 3] for i in range(5, NUMBERS, 3))
        rows = taps[0] * taps[1] * taps[2]
        width = out_size[2]
        last = (begin + count - 1) // width + 1
        with code.loop(begin // width, last) as line:  # of the results of all images
            before = line * width
            start = code.select(begin > before, begin - before, 0)
            left = begin + count - before
            stop = code.select(left < width, left, width)
            plane = line // out_size[1]
            places = [plane % out_size[0], line % out_size[1]]
            source = code.at(x, plane // out_size[0] * image, element)
            with code.loop(start, stop, lanes) as place:
                target = code.at(out, before + place - begin, element)
                with code.loop(0, taps[0]) as i, code.loop(0, taps[1]) as j:
                    inside = None
                    at = code.constant("i64", 0)
                    for axis, tap in enumerate((i, j)):
                        y = places[axis] * step[axis] + offset[axis] + tap * delta[axis]
                        fits = code.unsigned_less(y, size[axis])
                        inside = fits if inside is None else inside & fits
                        at = at + y * strides[axis]
                    assert inside is not None
                    limit = code.select(inside, size[2], 0)  # outside, no element is read
                    with code.loop(0, taps[2]) as k:
                        x_place = place * step[2] + offset[2] + k * delta[2]
                        row = (i * taps[1] + j) * taps[2] + k
                        _copies(
                            code,
                            code.at(source, at + x_place * strides[2], element),
                            code.at(target, row * pitch, element),
                            type,
                            neighbours,
                            Line(x_place, limit, step[2], step[2] * strides[2]),
                            Line(code.constant("i64", 0), channels, channel, rows * pitch),
                        )
        return code


def _copies(
    code: Code, source: Value, target: Value, type: str, neighbours: int, along: Line, channels: Line
) -> None:
    """Copy a vector for each channel.

    Args:
        code: is written to.
        source: address of the first element of the first channel, which need not exist.
        target: address of the first channel's vector.
        type: of a vector.
        neighbours: see :attr:`Columns.neighbours`.
        along: number of the first element in its row of the image, how many there are, and from one to the
            next, and how far these are apart in memory. Elements that do not exist are 0.
        channels: 0, how many there are, and how far they are apart, and their rows of columns.
    """
    element, lanes = element_of(type), lanes_of(type)
    numbers = code.lane_numbers("i32", lanes)
    first, end, step = (code.splat(code.convert(v, "i32"), lanes) for v in along[:3])

    def copy(load: Callable[[Value], Value]) -> None:
        with code.loop(channels.first, channels.end) as c:
            value = load(code.at(source, c * channels.step, element))
            code.store(value, target, c * channels.distance)

    if neighbours == 1:
        mask = code.unsigned_less(numbers + first, end)
        copy(lambda place: code.load(place, 0, type, mask))
    elif neighbours == 2:
        masks = [code.unsigned_less(numbers + part * lanes + first, end) for part in range(2)]
        copy(
            lambda place: code.shuffle(
                *(code.load(place, part * lanes, type, mask) for part, mask in enumerate(masks)),
                range(0, 2 * lanes, 2),
            )
        )
    else:
        mask = code.unsigned_less(numbers * step + first, end)
        distances = code.lane_numbers("i64", lanes) * code.splat(along.distance, lanes)
        copy(lambda place: code.gather(place, distances, type, mask))
