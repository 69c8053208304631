"""Convolution and its gradients on devices.

How a convolution is computed is for :mod:`dl4all.ops.conv.algorithms` to say; this is what works for all.
The windows that the filters meet are unrolled into the columns of a matrix (im2col; Chellapilla, Puri and
Simard, 2006), which a matrix product then multiplies with the filters; the gradients are the two other
products of the same three matrices. A 1x1 convolution with stride 1 needs no unrolling, and where each
filter sees one channel there is too little to multiply: kernels of their own do that directly.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from dl4all.ops.conv import algorithms, direct, fft, winograd
from dl4all.ops.conv.filter_cache import SUM, add_up, aligned
from dl4all.ops.conv.problem import Problem
from dl4all.ops.core.launch import MAX_GRID_SIZE, ceil_div, check_rounds, pack, run, shader, strided_grid
from dl4all.ops.core.op import empty
from dl4all.ops.core.tensor_base import TensorBase
from dl4all.ops.linalg.gemm import PANEL, GemmProblem, gemm
from dl4all.scheduler.programs import Launch

IM2COL = {deep: shader("conv/im2col.comp", VOLUME=int(deep)) for deep in (False, True)}
COL2IM = shader("conv/col2im.comp")
DEPTHWISE = shader("conv/depthwise.comp", PASS=0)
DEPTHWISE_INPUT = shader("conv/depthwise.comp", PASS=1)
DEPTHWISE_WEIGHT = shader("conv/depthwise_weight.comp")
FORWARD_SHADERS = (
    *IM2COL.values(),
    DEPTHWISE,
    *direct.FORWARD_SHADERS,
    *winograd.FORWARD_SHADERS,
    *fft.FORWARD_SHADERS,
)
INPUT_SHADERS = (
    COL2IM,
    DEPTHWISE_INPUT,
    *direct.FORWARD_SHADERS,
    *winograd.INPUT_SHADERS,
    *fft.INPUT_SHADERS,
)
WEIGHT_SHADERS = (
    *IM2COL.values(),
    SUM,
    DEPTHWISE_WEIGHT,
    *direct.WEIGHT_SHADERS,
    *winograd.WEIGHT_SHADERS,
    *fft.WEIGHT_SHADERS,
)
CONVOLVE: dict[str, Callable[..., None]] = {
    "direct": direct.direct,
    "implicit": direct.implicit,
    **{name: partial(winograd.convolve, tile=tile) for name, tile in algorithms.TILES.items()},
}
"""What computes a convolution, or with stride 1 the gradient of its input; im2col is below."""

WORKGROUP = 64
IM2COL_CHANNELS = 4  # of one invocation
COLUMN_BYTES = 2**25  # of unrolled windows at a time; large enough to keep every core or multiprocessor busy
LARGE = 2**21  # multiplications from which on it pays to copy filters that are not aligned
SLOT_BYTES = 2**25  # of weights' gradients that are summed side by side


def forward(out: TensorBase, x: TensorBase, w: TensorBase, bias: TensorBase | None, q: Problem) -> None:
    """Fill `out` with the convolution of contiguous tensors."""
    way = algorithms.chosen(out.device, q, "forward")
    if way == algorithms.FOURIER:
        fft.convolve(out, x, w, bias, q)
        return
    if q.depthwise:
        _depthwise(out, x, w, bias, q)
        return
    if way != "im2col":
        CONVOLVE[way](out, x, w, bias, q)
        return
    image_size, filters = q.channels * q.plane, q.filters // q.groups
    plain = q.win.moves_nothing
    # So many pixels of so many images at a time that their columns stay below COLUMN_BYTES.
    span, batch = (q.pixels, q.images) if plain else _portion(q, PANEL)
    pitch = ceil_div(span, PANEL) * PANEL
    columns = x if plain else empty(type(out), (batch, q.inner, pitch), out.dtype, out.device)
    lda = q.inner
    if q.images * q.filters * q.inner * q.pixels >= LARGE:
        w = aligned(w, q)
        lda = w.strides[0]
    for first_image in range(0, q.images, batch):
        count = min(batch, q.images - first_image)
        for group in range(q.groups):
            source = x.offset + first_image * image_size + group * (image_size // q.groups)
            for first in range(0, q.pixels, span):
                here = min(span, q.pixels - first)
                if not plain:
                    _unroll(columns, x, q, source, first, here, count, pitch, PANEL)
                product = GemmProblem(
                    m=filters, n=here, k=q.inner,
                    lda=lda, ldb=q.pixels if plain else PANEL, ldc=q.pixels,
                    a_offset=w.offset + group * filters * lda,
                    b_offset=source if plain else 0,
                    c_offset=(first_image * q.groups + group) * filters * q.pixels + first,
                    batch=count,
                    b_step=image_size if plain else q.inner * pitch,
                    c_step=q.filters * q.pixels,
                    panel=0 if plain else PANEL,
                    panel_step=q.inner * PANEL,
                    bias_offset=group * filters,
                )  # fmt: skip
                gemm(out, w, columns, bias, product)


def _portion(q: Problem, multiple: int) -> tuple[int, int]:
    """Pixels, a multiple of so many unless they are all, and images whose columns are made at a time."""
    most = COLUMN_BYTES // 4 // max(q.inner, 1)
    span = min(q.pixels, max(multiple, most // multiple * multiple))
    return span, max(1, min(q.images, most // (ceil_div(span, multiple) * multiple), MAX_GRID_SIZE))


def _unroll(
    columns: TensorBase,
    x: TensorBase,
    q: Problem,
    source: int,
    first: int,
    here: int,
    count: int,
    pitch: int,
    panel: int,
) -> None:
    """The columns of `here` pixels from `first` on, of `count` images."""
    channels = q.channels // q.groups
    push = pack(
        *q.win.words, channels, *q.size, *q.out_size[1:],
        first, here, pitch, panel, source, q.channels * q.plane, q.inner * pitch,
    )  # fmt: skip
    rows = ceil_div(channels, IM2COL_CHANNELS) * q.taps
    deep = max(q.out_size[0], q.size[0], q.win.kernel[0], q.win.before[0] + 1) > 1
    run(IM2COL[deep], (ceil_div(pitch // 4, WORKGROUP), rows, count), push, x, columns)


def input_gradient(out: TensorBase, g: TensorBase, w: TensorBase, q: Problem) -> None:
    """Fill `out`, of the input's shape, from the gradient `g` of the output.

    The columns are the product of the turned filters and `g`; channels whose columns fit are made at a time.
    """
    way = algorithms.chosen(out.device, q, "input")
    if way == algorithms.FOURIER:
        fft.convolve(out, g, w, None, q, turn=True)
        return
    if q.depthwise:
        _depthwise_input(out, g, w, q)
        return
    if way != "im2col":
        CONVOLVE[way](out, g, w, None, q.turned, turn=True)
        return
    channels, filters = q.channels // q.groups, q.filters // q.groups
    plain = q.win.moves_nothing
    most = COLUMN_BYTES // 4 // max(1, q.taps * q.pixels)  # channels of images
    some = channels if plain else max(1, min(channels, most, MAX_GRID_SIZE))
    batch = q.images if plain else max(1, min(q.images, most // some, MAX_GRID_SIZE))
    shape = (batch, some * q.taps, q.pixels)
    wide, _, _ = strided_grid(q.plane, WORKGROUP)
    columns = out if plain else empty(type(out), shape, out.dtype, out.device)
    for first_image in range(0, q.images, batch):
        count = min(batch, q.images - first_image)
        for channel in range(0, q.channels, some):
            # A portion ends where the group does.
            group, within = divmod(channel, channels)
            here = min(some, channels - within)
            target = (first_image * q.channels + channel) * q.plane
            product = GemmProblem(
                m=here * q.taps, n=q.pixels, k=filters,
                lda=q.inner, ldb=q.pixels, ldc=q.pixels,
                a_offset=w.offset + group * filters * q.inner + within * q.taps,
                b_offset=g.offset + (first_image * q.filters + group * filters) * q.pixels,
                c_offset=target if plain else 0,
                batch=count,
                b_step=q.filters * q.pixels,
                c_step=q.channels * q.plane if plain else some * q.taps * q.pixels,
                transpose_a=True,
            )  # fmt: skip
            gemm(columns, w, g, None, product)
            if not plain:
                win = q.win
                push = pack(
                    *win.before, *win.dilation, *q.size, *q.out_size,
                    target, q.channels * q.plane, some * q.taps * q.pixels, wide * WORKGROUP,
                )  # fmt: skip
                _check_rounds(out, q.plane, wide, q.taps)
                launch = Launch(COL2IM, (wide, here, count), push, win.stride + win.kernel)
                out.device.launch(launch, columns.storage, out.storage)


def weight_gradient(out: TensorBase, g: TensorBase, x: TensorBase, q: Problem) -> None:
    """Fill `out`, of the weight's shape, from the gradient `g` of the output and the input.

    Images are multiplied side by side into slots of their own, as far as there is room, one after the other
    within a slot; the slots are added up last. The order of all additions is fixed.
    """
    if q.images == 0:
        add_up(out, empty(type(out), (1,), out.dtype, out.device), out.numel(), 0, 0)
        return
    way = algorithms.chosen(out.device, q, "weight")
    if way == algorithms.FOURIER:
        fft.weight_gradient(out, g, x, q)
        return
    if q.depthwise:
        _depthwise_weight(out, g, x, q)
        return
    if way == "direct":
        direct.direct_weight(out, g, x, q)
        return
    if way != "im2col":
        winograd.weight_gradient(out, g, x, q, algorithms.TILES[way])
        return
    image_size, filters = q.channels * q.plane, q.filters // q.groups
    size = filters * q.inner
    plain = q.win.moves_nothing
    span, batch = (q.pixels, q.images) if plain else _portion(q, 4)
    pitch = ceil_div(span, 4) * 4
    batch = max(1, min(batch, SLOT_BYTES // 4 // max(size, 1)))
    columns = x if plain else empty(type(out), (batch, q.inner, pitch), out.dtype, out.device)
    slots = out if batch == 1 else empty(type(out), (batch, size), out.dtype, out.device)
    for group in range(q.groups):
        place = group * size if batch == 1 else 0
        for first_image in range(0, q.images, batch):
            count = min(batch, q.images - first_image)
            source = x.offset + first_image * image_size + group * (image_size // q.groups)
            for first in range(0, q.pixels, span):
                here = min(span, q.pixels - first)
                if not plain:
                    _unroll(columns, x, q, source, first, here, count, pitch, pitch)
                row = (first_image * q.filters + group * filters) * q.pixels + first
                product = GemmProblem(
                    m=filters, n=q.inner, k=here,
                    lda=q.pixels, ldb=q.pixels if plain else pitch, ldc=q.inner,
                    a_offset=g.offset + row,
                    b_offset=source if plain else 0,
                    c_offset=place,
                    batch=count,
                    a_step=q.filters * q.pixels,
                    b_step=image_size if plain else q.inner * pitch,
                    c_step=size,
                    transpose_b=True,
                    bias_offset=place, bias_row=q.inner, bias_column=1, bias_step=size,
                )  # fmt: skip
                started = first_image > 0 or first > 0
                gemm(slots, g, columns, slots if started else None, product)
        if batch > 1:
            add_up(out, slots, size, batch, group * size)


def _depthwise(out: TensorBase, x: TensorBase, w: TensorBase, bias: TensorBase | None, q: Problem) -> None:
    rows, layers = min(q.filters, MAX_GRID_SIZE), min(q.images, MAX_GRID_SIZE)
    wide, _, _ = strided_grid(q.pixels, WORKGROUP)
    _check_rounds(out, q.pixels, wide, q.taps)
    extra = (0, 0) if bias is None else (1, bias.offset)
    push = _depthwise_push(q, x.offset, w.offset, wide * WORKGROUP, rows, layers, *extra)
    flops = 2 * out.numel() * q.taps
    run(DEPTHWISE, (wide, rows, layers), push, x, w, x if bias is None else bias, out, flops=flops)


def _depthwise_input(out: TensorBase, g: TensorBase, w: TensorBase, q: Problem) -> None:
    rows, layers = min(q.channels, MAX_GRID_SIZE), min(q.images, MAX_GRID_SIZE)
    wide, _, _ = strided_grid(q.plane, WORKGROUP)
    _check_rounds(out, q.plane, wide, q.taps * (q.filters // q.channels))
    push = _depthwise_push(q, g.offset, w.offset, wide * WORKGROUP, rows, layers, 0, 0)
    flops = 2 * g.numel() * q.taps
    run(DEPTHWISE_INPUT, (wide, rows, layers), push, g, w, out, flops=flops)


def _depthwise_weight(out: TensorBase, g: TensorBase, x: TensorBase, q: Problem) -> None:
    rows = min(q.filters, MAX_GRID_SIZE)
    check_rounds(out.device, q.images * (ceil_div(q.pixels, WORKGROUP) + 1))
    push = _depthwise_push(q, g.offset, x.offset, rows)
    run(DEPTHWISE_WEIGHT, (q.taps, rows, 1), push, g, x, out, flops=2 * g.numel() * q.taps)


def _check_rounds(out: TensorBase, pixels: int, wide: int, rounds: int) -> None:
    check_rounds(out.device, ceil_div(pixels, wide * WORKGROUP) * rounds)


def _depthwise_push(q: Problem, *rest: int) -> bytes:
    multiplier = q.filters // q.channels
    return pack(*q.win.words, *q.size, *q.out_size, q.images, q.channels, multiplier, *rest)


algorithms.RUNS.update(
    forward=lambda out, x, w, q: forward(out, x, w, None, q), input=input_gradient, weight=weight_gradient
)
