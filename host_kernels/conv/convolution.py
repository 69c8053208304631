"""Convolutions and gradients of their inputs: columns of some places of images, multiplied with the filters.

Columns (:mod:`columns`) of as many rows as fit into a core's first cache are written, then all filters of a
chunk are multiplied with them (:mod:`dot_tiles`), read as they lie in memory. Sums over more rows are added
up in the result. Where images are small, tiles have places of several images, and where a gradient has
several parts (:mod:`convolution_parts`), each has some of its places; results go to scratch memory then,
from where they are copied.
"""

from __future__ import annotations

import math

import numpy as np

from dl4all.host_kernels.conv.columns import Columns
from dl4all.host_kernels.conv.direct import MOST_WRITTEN_OUT, rows_computed
from dl4all.host_kernels.conv.epilogue import Following, launch_with_epilogue
from dl4all.host_kernels.conv.kernel import convolution
from dl4all.host_kernels.conv.parts import (
    GRAIN,
    MOST_TAPS,
    Extents,
    Filters,
    Part,
    PartPlan,
    gradient_parts,
    planned,
    three,
)
from dl4all.host_kernels.conv.shifted_rows import direct_form
from dl4all.host_kernels.conv.winograd import winograd_launch
from dl4all.host_kernels.lib.dot_tiles import DotTile, tile_for
from dl4all.host_kernels.lib.rows import CHUNK
from dl4all.ops.conv.convolution import ConvArgs
from dl4all.ops.conv.on_host import fft as host_fft
from dl4all.ops.conv.window import three_axes
from dl4all.ops.core.kernels.host_kernel import ArrayLayout, HostLaunch, host_kernel
from dl4all.ops.core.kernels.launch import NoKernel
from dl4all.runtime.cpu.llvm.ir_types import LLVM_TYPES, SIZES

MOST_WASTE = 1.04
"""Lanes computed for each result, from which tiles get places of several images."""
MOST_SIZE = 2**30
FEW_FILTERS = 4
"""Fewer leave registers unused: Fourier transforms may be faster."""


@host_kernel("conv1d", "conv2d", "conv3d", followed=True)
def prepare_convolution(
    out: ArrayLayout,
    input: ArrayLayout,
    weight: ArrayLayout,
    bias: ArrayLayout | None,
    stride: object,
    padding: object,
    dilation: object,
    groups: int,
    *,
    following: Following | None = None,
) -> HostLaunch:
    """The launch of a convolution and of what follows it.

    Its addresses are those of image, filters, bias if there is one, of what the program that follows reads
    and writes beside the sums, and of the result.

    Args:
        out: layout of the result, contiguous.
        input: of the images (N, C, ...).
        weight: of the filters (F, C / groups, ...).
        bias: of a number for each filter, if there is one.
        stride, padding, dilation, groups: of the convolution.
        following: what is computed of the sums.

    Raises:
        NoKernel: the NumPy body computes such convolutions, or does it faster; or it does not follow them.
    """
    args = ConvArgs(stride, padding, dilation, groups)  # type: ignore[arg-type]
    window = args.window(weight.shape[2:]).three_axes
    filters, channels = weight.shape[0] // args.groups, weight.shape[1]
    row, channel, *taps = weight.strides
    found = Columns(
        (*input.strides[:2], *three(input.strides[2:])),  # type: ignore[arg-type]
        three_axes(input.shape[2:]),
        three_axes(out.shape[2:]),
        window.kernel,
        window.stride,
        tuple(-before for before in window.before),
        window.dilation,
    )
    if input.shape[0] * found.places == 1 and found.rows == 1:
        raise NoKernel("a matrix and a vector")
    if filters < FEW_FILTERS and host_fft.worthwhile(
        input.shape, weight.shape, args.window(weight.shape[2:]), args.groups
    ):
        raise NoKernel("faster by transforms")
    part = Part(found, Filters(row * filters, row, channel, three(taps)), 0)
    operands = [input, weight] if bias is None else [input, weight, bias]
    extents = Extents(input.shape[0], args.groups, filters, channels)
    return launch_of(out, operands, extents, [part], bias=bias is not None, following=following)


@host_kernel("conv_input")
def prepare_input_gradient(
    out: ArrayLayout,
    grad: ArrayLayout,
    weight: ArrayLayout,
    input_size: object,
    stride: object,
    padding: object,
    dilation: object,
    groups: int,
) -> HostLaunch:
    """
    Raises:
        NoKernel: the NumPy body computes such gradients, or does it faster.
    """
    del input_size  # the result's
    window = ConvArgs(stride, padding, dilation, groups).window(weight.shape[2:]).three_axes  # type: ignore[arg-type]
    filters, channels = weight.shape[0] // groups, weight.shape[1]
    row, channel, *taps = weight.strides
    if (
        groups == 1
        and math.prod(grad.shape[2:]) == 1
        and out.shape[2:] == weight.shape[2:]
        and not any(window.before)
    ):
        return _product(out, grad, weight)
    parts = gradient_parts(
        window,
        three_axes(grad.shape[2:]),
        (*grad.strides[:2], *three(grad.strides[2:])),  # type: ignore[arg-type]
        three_axes(out.shape[2:]),
        Filters(row * filters, channel, row, three(taps)),
    )
    extents = Extents(grad.shape[0], groups, channels, filters)
    return launch_of(out, [grad, weight], extents, parts, three_axes(window.stride))


def _product(out: ArrayLayout, grad: ArrayLayout, weight: ArrayLayout) -> HostLaunch:
    """The launch where a filter meets the whole input: each image's gradient is a sum of the filters.

    All elements of the filters are taken for places of an image that has a channel for each filter.

    Raises:
        NoKernel: there is none for these.
    """
    if not weight.is_contiguous():
        raise NoKernel("filters with gaps")
    places = math.prod(weight.shape[1:])
    size, ones, zeros = (1, 1, places), (1, 1, 1), (0, 0, 0)
    columns = Columns((0, places, 0, places, 1), size, size, ones, ones, zeros, ones)
    filters = Filters(0, grad.strides[0], grad.strides[1], zeros)
    extents = Extents(1, 1, grad.shape[0], grad.shape[1])
    return launch_of(out, [grad, weight], extents, [Part(columns, filters, 0)], ones, size)


def launch_of(
    out: ArrayLayout,
    operands: list[ArrayLayout],
    extents: Extents,
    parts: list[Part],
    steps: tuple[int, ...] = (1, 1, 1),
    size: tuple[int, ...] = (),
    *,
    bias: bool = False,
    following: Following | None = None,
) -> HostLaunch:
    """The launch for some parts, whose places are `steps` apart in the result.

    With a size of results other than that of `out`, the first operand is what is used as filters.

    Raises:
        NoKernel: there is none for these.
    """
    dtype = out.dtype
    if dtype not in (np.float32, np.float64) or any(operand.dtype != dtype for operand in operands):
        raise NoKernel("other than floats of 32 or 64 bits")
    if 0 in extents or any(part.columns.rows > MOST_TAPS for part in parts):
        raise NoKernel("nothing to add up, or too many taps")
    if (
        max(number for part in parts for number in (*part.columns.size, *map(abs, part.columns.offset)))
        > MOST_SIZE
    ):
        raise NoKernel("too large")
    swapped = bool(size)
    if not swapped:
        launch = winograd_launch(out, operands, extents, parts, following, bias=bias)
        if launch:
            return launch
    is_direct = extents.groups > 1 and 1 in (extents.channels, extents.filters)
    if is_direct and len(out.shape) > 4:
        raise NoKernel("groups of three axes")
    element = LLVM_TYPES[dtype.name]
    tile = DotTile(1, 1, element) if is_direct else tile_for(extents.filters, element)
    size = size or three_axes(out.shape[2:])
    lanes = -(-math.prod(size) // tile.lanes) * tile.lanes
    gathered = len(parts) > 1 or (
        not is_direct and extents.images > 1 and lanes > MOST_WASTE * math.prod(size)
    )
    first, plans = 0, list[PartPlan]()
    for part in parts:
        plans.append(planned(part, extents, tile, first, gathered=gathered))
        first += plans[-1].runs * plans[-1].out_run if gathered else 0
    readings = {part.columns.reading for part in parts}
    reading = readings.pop() if len(readings) == 1 else max(0, min(abs(reading) for reading in readings))
    direct = None
    if is_direct:
        direct = direct_form(parts, extents.channels, element, MOST_WRITTEN_OUT, rows_computed)
        plans = [
            plan._replace(
                grain=max(1, GRAIN // max(1, part.columns.places * part.columns.rows * extents.channels))
            )
            for part, plan in zip(parts, plans, strict=True)
        ]
    spread = steps[2] if len(parts) > 1 else 0
    rest = extents.filters % tile.rows
    form = (tile, rest, reading, gathered, spread, direct, swapped)
    rows = extents.groups * extents.filters
    grain = max(1, CHUNK // max(1, math.prod(size)))
    common = (extents.images, rows, operands[-1].strides[0], len(parts), *size, *steps, grain)
    blocks = [n for part, plan in zip(parts, plans, strict=True) for n in (*part.columns.numbers, *plan)]
    products = sum(part.columns.places * part.columns.rows for part in parts) * math.prod(extents)
    return launch_with_epilogue(
        convolution,
        form,
        len(operands),
        common,
        out,
        following,
        bias=bias,
        others=blocks,
        scratch=first * SIZES[element],
        work=products // 8,
    )
