"""Convolution on devices by unrolled windows and matrix products (Chellapilla, Puri and Simard, 2006).

im2col unrolls the windows that the filters meet into the columns of a matrix, which a matrix product then
multiplies with the filters; the gradients are the two other products of the same three matrices. A 1x1
convolution with stride 1 needs no unrolling.
"""

from __future__ import annotations

from dl4all.ops.conv.costs import (
    COST_PER_FILTER_ELEMENT,
    COST_PER_LAUNCH,
    COST_PER_RESULT,
    COST_PER_STORED_FLOAT,
    gemm_cost,
)
from dl4all.ops.conv.filter_cache import derived_cache, empty_filters
from dl4all.ops.conv.problem import Algorithm, Direction, Problem
from dl4all.ops.conv.slots import SUM, sum_slots
from dl4all.ops.core.dtypes import FLOAT32
from dl4all.ops.core.kernels.launch import (
    MAX_GRID_SIZE,
    ceil_div,
    check_rounds,
    run,
    shader,
    strided_grid,
)
from dl4all.ops.core.kernels.push_block import PushBlock
from dl4all.ops.core.op import empty
from dl4all.ops.core.tensor_base import TensorBase
from dl4all.ops.linalg.gemm import GEMM_SHADERS, PANEL, GemmProblem, gemm
from dl4all.ops.memory.copy import copy_into
from dl4all.runtime.device_info import DeviceInfo

IM2COL_PUSH = PushBlock(
    "conv/im2col.comp",
    "uint kernel_d, kernel_h, kernel_w, stride_d, stride_h, stride_w, padding_d, padding_h, padding_w, "
    "dilation_d, dilation_h, dilation_w, channels, depth, height, width, out_height, out_width, first, "
    "count, pitch, panel, x_offset, x_step, columns_step;",
)
COL2IM_PUSH = PushBlock(
    "conv/col2im.comp",
    "uint padding_d, padding_h, padding_w, dilation_d, dilation_h, dilation_w, depth, height, width, "
    "out_depth, out_height, out_width, y_offset, y_step, columns_step, step;",
)
IM2COL = {volume: shader("conv/im2col.comp", VOLUME=int(volume)) for volume in (False, True)}
COL2IM = shader("conv/col2im.comp")

WORKGROUP = 64  # invocations
CHANNELS_PER_INVOCATION = 4  # of im2col.comp
COLUMN_BYTES = 2**25  # Unrolled windows at a time: enough to keep every core or multiprocessor busy.
SLOT_BYTES = 2**25  # Gradients of filters that are computed side by side before they are summed up.
MIN_ALIGNED_TERMS = 2**21  # From so many multiplications on it pays to copy filters that are not aligned.

COST_PER_GATHERED_FLOAT = 250  # Summing up a float of the columns into the gradient of the input.
TRANSPOSED_GEMM_RATIO = 2  # How much longer a product takes whose first operand is read across its rows.


def _supports(info: DeviceInfo, problem: Problem, direction: Direction) -> bool:
    return not problem.depthwise


def _cost(info: DeviceInfo, problem: Problem, direction: Direction) -> float:
    return problem.images * problem.groups * _cost_per_group(info, problem, direction) + 2 * COST_PER_LAUNCH


def _cost_per_group(info: DeviceInfo, problem: Problem, direction: Direction) -> float:
    """The cost of one group of one image."""
    filters = problem.filters // problem.groups
    columns, weights = problem.reduction_size * problem.out_pixels, filters * problem.reduction_size
    moved = 0 if problem.win.is_pointwise else columns
    if direction == "forward":
        product = gemm_cost(info, filters, problem.out_pixels, problem.reduction_size)
        product += COST_PER_RESULT * filters * problem.out_pixels
        filter_cost = COST_PER_FILTER_ELEMENT["forward"] * weights / problem.images
        return product + COST_PER_STORED_FLOAT * moved + filter_cost
    if direction == "input_gradient":
        product = gemm_cost(info, problem.reduction_size, problem.out_pixels, filters)
        return TRANSPOSED_GEMM_RATIO * product + COST_PER_GATHERED_FLOAT * moved
    product = gemm_cost(info, filters, problem.reduction_size, problem.out_pixels)
    filter_cost = COST_PER_FILTER_ELEMENT["weight_gradient"] * weights
    return product + COST_PER_STORED_FLOAT * moved + filter_cost


def forward(out: TensorBase, x: TensorBase, w: TensorBase, bias: TensorBase | None, problem: Problem) -> None:
    image_size, filters = problem.channels * problem.in_pixels, problem.filters // problem.groups
    reduction_size, out_pixels = problem.reduction_size, problem.out_pixels
    plain = problem.win.is_pointwise
    span, batch = (out_pixels, problem.images) if plain else _portion(problem, PANEL)
    pitch = ceil_div(span, PANEL) * PANEL
    columns = x if plain else empty(type(out), (batch, reduction_size, pitch), x.dtype, out.device)
    lda = reduction_size
    if problem.images * problem.filters * reduction_size * out_pixels >= MIN_ALIGNED_TERMS:
        w = _aligned_filters(w, problem)
        lda = w.strides[0]
    for first_image in range(0, problem.images, batch):
        image_count = min(batch, problem.images - first_image)
        for group in range(problem.groups):
            source = x.offset + first_image * image_size + group * (image_size // problem.groups)
            for first_pixel in range(0, out_pixels, span):
                pixel_count = min(span, out_pixels - first_pixel)
                if not plain:
                    _unroll(columns, x, problem, source, first_pixel, pixel_count, image_count, pitch, PANEL)
                product = GemmProblem(
                    m=filters, n=pixel_count, k=reduction_size,
                    lda=lda, ldb=out_pixels if plain else PANEL, ldc=out_pixels,
                    a_offset=w.offset + group * filters * lda,
                    b_offset=source if plain else 0,
                    c_offset=(first_image * problem.groups + group) * filters * out_pixels + first_pixel,
                    batch=image_count,
                    b_step=image_size if plain else reduction_size * pitch,
                    c_step=problem.filters * out_pixels,
                    panel=0 if plain else PANEL,
                    panel_step=reduction_size * PANEL,
                    bias_offset=group * filters,
                )  # fmt: skip
                gemm(out, w, columns, bias, product)


def input_gradient(out: TensorBase, g: TensorBase, w: TensorBase, problem: Problem) -> None:
    """The columns are the product of the transposed filters and `g`, for channels that fit at a time."""
    channels, filters = problem.channels // problem.groups, problem.filters // problem.groups
    in_pixels, out_pixels, kernel_elements = problem.in_pixels, problem.out_pixels, problem.kernel_elements
    plain = problem.win.is_pointwise
    max_planes = COLUMN_BYTES // 4 // max(1, kernel_elements * out_pixels)
    span = channels if plain else max(1, min(channels, max_planes, MAX_GRID_SIZE))
    batch = problem.images if plain else max(1, min(problem.images, max_planes // span, MAX_GRID_SIZE))
    shape = (batch, span * kernel_elements, out_pixels)
    wide, _, _ = strided_grid(in_pixels, WORKGROUP)
    columns = out if plain else empty(type(out), shape, FLOAT32, out.device)
    for first_image in range(0, problem.images, batch):
        image_count = min(batch, problem.images - first_image)
        for channel in range(0, problem.channels, span):
            # A portion ends where the group does.
            group, channel_in_group = divmod(channel, channels)
            channel_count = min(span, channels - channel_in_group)
            target = (first_image * problem.channels + channel) * in_pixels
            product = GemmProblem(
                m=channel_count * kernel_elements, n=out_pixels, k=filters,
                lda=problem.reduction_size, ldb=out_pixels, ldc=out_pixels,
                a_offset=w.offset + group * filters * problem.reduction_size
                + channel_in_group * kernel_elements,
                b_offset=g.offset + (first_image * problem.filters + group * filters) * out_pixels,
                c_offset=target if plain else 0,
                batch=image_count,
                b_step=problem.filters * out_pixels,
                c_step=problem.channels * in_pixels if plain else span * kernel_elements * out_pixels,
                transpose_a=True,
            )  # fmt: skip
            gemm(columns, w, g, None, product)
            if not plain:
                win = problem.win
                push = COL2IM_PUSH.pack(
                    *win.before, *win.dilation, *problem.size, *problem.out_size,
                    target, problem.channels * in_pixels, span * kernel_elements * out_pixels,
                    wide * WORKGROUP,
                )  # fmt: skip
                check_rounds(out.device, ceil_div(in_pixels, wide * WORKGROUP) * kernel_elements)
                grid = (wide, channel_count, image_count)
                run(COL2IM, grid, push, columns, out, constants=win.stride + win.kernel)


def weight_gradient(out: TensorBase, g: TensorBase, x: TensorBase, problem: Problem) -> None:
    """As many images as there is room for are multiplied side by side, each into a slot of its own, to which
    later images are added; the slots are summed up last. The order of all additions is fixed.
    """
    image_size, filters = problem.channels * problem.in_pixels, problem.filters // problem.groups
    reduction_size, out_pixels = problem.reduction_size, problem.out_pixels
    size = filters * reduction_size
    plain = problem.win.is_pointwise
    span, batch = (out_pixels, problem.images) if plain else _portion(problem, 4)
    pitch = ceil_div(span, 4) * 4
    batch = max(1, min(batch, SLOT_BYTES // 4 // max(size, 1)))
    columns = x if plain else empty(type(out), (batch, reduction_size, pitch), x.dtype, out.device)
    slots = out if batch == 1 else empty(type(out), (batch, size), FLOAT32, out.device)
    for group in range(problem.groups):
        offset = group * size if batch == 1 else 0
        for first_image in range(0, problem.images, batch):
            image_count = min(batch, problem.images - first_image)
            source = x.offset + first_image * image_size + group * (image_size // problem.groups)
            for first_pixel in range(0, out_pixels, span):
                pixel_count = min(span, out_pixels - first_pixel)
                if not plain:
                    _unroll(columns, x, problem, source, first_pixel, pixel_count, image_count, pitch, pitch)
                row = (first_image * problem.filters + group * filters) * out_pixels + first_pixel
                product = GemmProblem(
                    m=filters, n=reduction_size, k=pixel_count,
                    lda=out_pixels, ldb=out_pixels if plain else pitch, ldc=reduction_size,
                    a_offset=g.offset + row,
                    b_offset=source if plain else 0,
                    c_offset=offset,
                    batch=image_count,
                    a_step=problem.filters * out_pixels,
                    b_step=image_size if plain else reduction_size * pitch,
                    c_step=size,
                    transpose_b=True,
                    bias_offset=offset, bias_row=reduction_size, bias_column=1, bias_step=size,
                )  # fmt: skip
                accumulates = first_image > 0 or first_pixel > 0
                gemm(slots, g, columns, slots if accumulates else None, product)
        if batch > 1:
            sum_slots(out, slots, size, batch, group * size)


def _portion(problem: Problem, multiple: int) -> tuple[int, int]:
    """The pixels and images whose columns are made at a time, so that they stay below COLUMN_BYTES.

    The number of pixels is a multiple of `multiple`, unless it is all of them.
    """
    max_columns = COLUMN_BYTES // 4 // max(problem.reduction_size, 1)
    span = min(problem.out_pixels, max(multiple, max_columns // multiple * multiple))
    batch = min(problem.images, max_columns // (ceil_div(span, multiple) * multiple), MAX_GRID_SIZE)
    return span, max(1, batch)


def _unroll(
    columns: TensorBase,
    x: TensorBase,
    problem: Problem,
    source: int,
    first_pixel: int,
    pixel_count: int,
    image_count: int,
    pitch: int,
    panel: int,
) -> None:
    """Fill the columns of `pixel_count` pixels from `first_pixel` on, of `image_count` images."""
    win, channels = problem.win, problem.channels // problem.groups
    push = IM2COL_PUSH.pack(
        *win.words, channels, *problem.size, *problem.out_size[1:],
        first_pixel, pixel_count, pitch, panel,
        source, problem.channels * problem.in_pixels, problem.reduction_size * pitch,
    )  # fmt: skip
    rows = ceil_div(channels, CHANNELS_PER_INVOCATION) * problem.kernel_elements
    run(IM2COL[problem.volume], (ceil_div(pitch // 4, WORKGROUP), rows, image_count), push, x, columns)


def _aligned_filters(w: TensorBase, problem: Problem) -> TensorBase:
    """A matrix with a row for each filter that can be read four elements at a time.

    It is `w` itself where `w` is aligned, else a copy whose rows begin at multiples of four elements.

    Shape:
        (filters, columns)
    """

    def as_matrix(filters: TensorBase, pitch: int = problem.reduction_size) -> TensorBase:
        shape = (problem.filters, problem.reduction_size)
        matrix: TensorBase = filters.strided_view(shape, (pitch, 1), filters.offset)
        return matrix

    pitch = ceil_div(problem.reduction_size, 4) * 4
    if pitch == problem.reduction_size and w.offset % 4 == 0:
        return as_matrix(w)

    def copy() -> TensorBase:
        filters = empty_filters(w, problem.filters, pitch)
        copy_into(as_matrix(filters, pitch), as_matrix(w))
        return filters

    return derived_cache(w).get(w, (w.offset, problem.filters, problem.reduction_size), copy)


ALGORITHM = Algorithm(
    "im2col",
    _supports,
    _cost,
    forward,
    input_gradient,
    weight_gradient,
    {
        "forward": (*IM2COL.values(), *GEMM_SHADERS),
        "input_gradient": (COL2IM, *GEMM_SHADERS),
        "weight_gradient": (*IM2COL.values(), SUM, *GEMM_SHADERS),
    },
)
