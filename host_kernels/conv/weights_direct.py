"""Gradients of filters of groups with one channel or one filter, as depthwise ones, row by row of results."""

from __future__ import annotations

from dl4all.host_kernels.conv.columns import NUMBERS, Columns, vector_loader
from dl4all.host_kernels.conv.parts import GRAIN, three
from dl4all.host_kernels.lib.dot_tiles import vector_lanes
from dl4all.ops.conv.window import Window, three_axes
from dl4all.ops.core.kernels.host_kernel import ArrayLayout, HostLaunch
from dl4all.ops.core.kernels.launch import NoKernel
from dl4all.runtime.cpu.llvm.ir import IrModule
from dl4all.runtime.cpu.llvm.ir_types import LLVM_TYPES, vector

ROWS = 4
"""Of results at a time: sums of one row would wait for each other."""
ADDRESSES = 3
NAMES = ("grad_image", "grad_filter", "images", "groups", "filters", "channels", "grain")


def direct_weight_gradient(
    out: ArrayLayout, grad: ArrayLayout, input: ArrayLayout, window: Window, groups: int
) -> HostLaunch:
    """The launch for gradients whose last axes are contiguous.

    Raises:
        NoKernel: there are three axes.
    """
    if len(out.shape) > 4:
        raise NoKernel("groups of three axes")
    columns = Columns(
        (*input.strides[:2], *three(input.strides[2:])),  # type: ignore[arg-type]
        three_axes(input.shape[2:]),
        three_axes(grad.shape[2:]),
        window.kernel,
        window.stride,
        tuple(-before for before in window.before),
        window.dilation,
    )
    products = grad.shape[0] * columns.places * columns.rows
    numbers = (
        *columns.numbers,
        *(*grad.strides[:2], grad.shape[0], groups, out.shape[0] // groups, out.shape[1]),
        max(1, GRAIN // products),
    )
    key = (abs(columns.reading), LLVM_TYPES[out.dtype.name])
    work = products * out.shape[0] * out.shape[1] // 8
    return HostLaunch(weight_gradient_of_planes, key, ADDRESSES, numbers, work=work)


def weight_gradient_of_planes(reading: int, element: str) -> IrModule:
    """Slots: gradients, images, result, numbers of columns, and those of :data:`NAMES`."""
    lanes = vector_lanes(element)
    type = vector(element, lanes)
    module = IrModule()
    with module.part("planes") as code:
        _, begin, end = code.parameters
        grad, x, out = (code.slot(i, "ptr") for i in range(ADDRESSES))
        numbers = [code.slot(ADDRESSES + i) for i in range(NUMBERS)]
        at = {name: code.slot(ADDRESSES + NUMBERS + i) for i, name in enumerate(NAMES)}
        image, channel, _, row_stride, stride = numbers[:5]
        size, out_size, taps, step, offset, delta = (numbers[i : i + 3] for i in range(5, NUMBERS, 3))
        with (
            code.loop(begin, end) as plane,
            code.loop(0, taps[1]) as kh,
            code.loop(0, taps[2]) as kw,
        ):
            row, c = plane // at["channels"], plane % at["channels"]
            gradients = code.at(grad, row * at["grad_filter"], element)
            images = code.at(x, (row // at["filters"] * at["channels"] + c) * channel, element)
            sums = [code.variable(type, 0.0) for _ in range(ROWS)]
            with (
                code.loop(0, out_size[2], lanes) as x0,
                code.loop(0, at["images"]) as n,
                code.loop(0, out_size[1], ROWS) as y0,
            ):
                across = x0 * step[2] + offset[2] + kw * delta[2]
                for r, total in enumerate(sums):
                    y = y0 + r
                    down = y * step[1] + offset[1] + kh * delta[1]
                    exists = y < out_size[1]
                    mask = code.first_lanes(code.select(exists, out_size[2] - x0, 0), lanes)
                    place = n * at["grad_image"] + y * out_size[2] + x0
                    gradient = code.load(gradients, place, type, mask)
                    limit = code.select(exists & code.unsigned_less(down, size[1]), size[2], 0)
                    load = vector_loader(code, reading, type, across, limit, step[2], stride)
                    met = load(code.at(images, n * image + down * row_stride + across * stride, element))
                    met = code.select(mask, met, 0.0)  # what follows in memory may be nan
                    total.value = code.intrinsic("fmuladd", gradient, met, total.value)
            all_rows = (sums[0].value + sums[1].value) + (sums[2].value + sums[3].value)
            code.store(code.sum_of(all_rows), out, (plane * taps[1] + kh) * taps[2] + kw)
        part = code
    with module.kernel("weight_gradient_of_planes") as code:
        count = (
            code.slot(ADDRESSES + NUMBERS + NAMES.index(name)) for name in ("groups", "filters", "channels")
        )
        groups, filters, channels = count
        grain = code.slot(ADDRESSES + NUMBERS + NAMES.index("grain"))
        code.parallel(part, code.parameters[0], groups * filters * channels, grain)
    return module
