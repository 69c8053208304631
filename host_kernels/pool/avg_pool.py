"""Average pooling and its gradient: sums down the columns of windows first, then along their rows."""

from __future__ import annotations

from typing import Any

from dl4all.host_kernels.lib.lines import COPIES, FIELDS, LineGeometry, Lines, LineSlots, each_line
from dl4all.host_kernels.lib.rows import row_passes
from dl4all.host_kernels.normalization.batch_norm import check_contiguous
from dl4all.host_kernels.pool.pooling import (
    INTEGERS,
    WindowSpan,
    column_span,
    fill,
    part_memory,
    picked,
    plan_of,
    planes_of,
    row_span,
)
from dl4all.ops.core.kernels.host_kernel import ArrayLayout, HostLaunch, host_kernel
from dl4all.ops.pool.avg_pool import avg_pooling
from dl4all.ops.pool.windows import Pooling, adaptive
from dl4all.runtime.cpu.llvm import provider
from dl4all.runtime.cpu.llvm.ir import Code, IrModule, IrValue
from dl4all.runtime.cpu.llvm.ir_types import vector

NUMBERS = (*INTEGERS, "include_pad", "divisor")


def _launch(text: Any, operand: ArrayLayout, elements: int, pooling: Pooling) -> HostLaunch:
    check_contiguous(operand)
    integers, scratch, stride = plan_of(pooling, planes_of(operand), band=False, extra=1)
    constants = (*integers, int(pooling.include_pad), pooling.divisor or 0)
    return HostLaunch(text, (stride,), 2, constants, scratch=scratch, work=2 * elements)


@host_kernel("avg_pool2d", copies=True)
def prepare_avg_pool(out: ArrayLayout, x: ArrayLayout, **arguments: Any) -> HostLaunch:
    """
    Raises:
        NoKernel: the operand is not of contiguous float32.
    """
    return _launch(avg_pool, x, x.numel(), avg_pooling(x.shape, **arguments))


@host_kernel("adaptive_avg_pool2d", copies=True)
def prepare_adaptive_avg_pool(out: ArrayLayout, x: ArrayLayout, output_size: Any) -> HostLaunch:
    """
    Raises:
        NoKernel: the operand is not of contiguous float32.
    """
    pooling = adaptive("adaptive_avg_pool2d", x.shape, output_size)
    if pooling.out_size == (1, 1):
        return _whole_launch(image_means, x, x)
    return _launch(avg_pool, x, x.numel(), pooling)


@host_kernel("avg_pool_backward", copies=True)
def prepare_backward(out: ArrayLayout, grad: ArrayLayout, pooling: Pooling) -> HostLaunch:
    """
    Raises:
        NoKernel: the operand is not of contiguous float32.
    """
    if pooling.win is None and pooling.out_size == (1, 1):
        return _whole_launch(image_means_backward, out, grad)
    return _launch(avg_pool_backward, grad, out.numel(), pooling)


def _whole_launch(text: Any, images: ArrayLayout, operand: ArrayLayout) -> HostLaunch:
    """The launch of a kernel of means of whole images."""
    check_contiguous(operand)
    geometry, _ = LineGeometry.of_axis(planes_of(images), images.shape[2] * images.shape[3], 1)
    return HostLaunch(text, (), 2, geometry, work=images.numel())


def _lengths(code: Code, slots: LineSlots, target: IrValue) -> None:
    """The width of each window as far as it counts, or 1 where a number divides the sums."""
    with code.loop(0, slots["out_width"]) as window:
        names = ("width", "columns", "column_stride", "column_padding")
        length = _length(code, slots, window, names)
        code.store(code.convert(code.select(slots["divisor"].equals(0), length, 1), "float"), target, window)


def _length(code: Code, slots: LineSlots, window: IrValue, names: tuple[str, str, str, str]) -> IrValue:
    size, kernel, stride, padding = (slots[name] for name in names)
    origin = window * stride - padding
    with_padding = code.intrinsic("smin", origin + kernel, size + padding) - origin
    inside = code.intrinsic("smin", origin + kernel, size) - code.intrinsic(
        "smax", origin, code.constant("i64", 0)
    )
    return code.select(slots["include_pad"].differs(0), with_padding, inside)


def _height(code: Code, slots: LineSlots, number: IrValue) -> IrValue:
    """The height of a row of windows as far as it counts, or the number that divides the sums."""
    length = _length(code, slots, number, ("height", "rows", "row_stride", "row_padding"))
    return code.convert(code.select(slots["divisor"].equals(0), length, slots["divisor"]), "float")


# Forward


def avg_pool(stride: int) -> IrModule:
    """Slots: the images, their means, scratch memory, the integers of pooling."""
    lanes, is_adaptive = provider.processor().lanes(), stride < 0
    type = vector("float", lanes)
    module = IrModule()
    with module.part("planes") as part:
        slots = LineSlots(part, ("x", "out", "scratch"), NUMBERS)
        _, begin, end = part.parameters
        row = part_memory(part, slots, begin)
        lengths = part.at(row, slots["row_length"], "float")
        fill(part, row, slots["row_length"], 0.0)
        if not is_adaptive:
            _lengths(part, slots, lengths)
        inside = part.at(row, slots["column_padding"], "float")
        width, out_width = slots["width"], slots["out_width"]
        with part.loop(begin, end) as plane:
            image = part.at(slots["x"], plane * slots["height"] * width, "float")
            target = part.at(slots["out"], plane * slots["out_height"] * out_width, "float")
            with part.loop(0, slots["out_height"]) as number:
                span = row_span(part, slots, number, is_adaptive)
                out = part.at(target, number * out_width, "float")
                _down_columns(part, slots, image, inside, span)
                if is_adaptive:
                    with part.loop(0, out_width) as window:
                        across = column_span(part, slots, window, True)
                        total = part.variable(type, 0.0)

                        def add(i: IrValue, mask: IrValue | None) -> None:
                            total.value = total.value + part.load(row, across.origin + i, type, mask)

                        row_passes(part, across.end, lanes, add)
                        count = part.convert(across.end * span.end, "float")
                        part.store(part.sum_of(total.value) / count, out, window)
                else:
                    height = part.splat(_height(part, slots, number), lanes)

                    def along_row(i: IrValue, mask: IrValue | None) -> None:
                        total = part.variable(type, 0.0)
                        with part.loop(0, slots["columns"]) as column:
                            place = i * slots["column_stride"] + column
                            total.value = total.value + picked(part, row, place, stride, slots)
                        length = part.load(lengths, i, type)
                        part.store(total.value / (length * height), out, i, mask)

                    row_passes(part, out_width, lanes, along_row)
    with module.kernel("avg_pool") as code:
        given = LineSlots(code, ("x", "out", "scratch"), NUMBERS)
        code.parallel(part, code.parameters[0], given["planes"], given["grain"])
    return module


def _down_columns(code: Code, slots: LineSlots, image: IrValue, target: IrValue, span: WindowSpan) -> None:
    """The sum of each column of a window's rows."""
    lanes = provider.processor().lanes()
    type, width = vector("float", lanes), slots["width"]

    def column(i: IrValue, mask: IrValue | None) -> None:
        total = code.variable(type, 0.0)
        with code.loop(span.first, span.end) as number:
            total.value = total.value + code.load(image, (span.origin + number) * width + i, type, mask)
        code.store(total.value, target, i, mask)

    row_passes(code, width, lanes, column)


# Backward


def avg_pool_backward(stride: int) -> IrModule:
    """Slots: the gradient of the means, that of the images, scratch memory, the integers of pooling."""
    lanes, is_adaptive = provider.processor().lanes(), stride < 0
    type = vector("float", lanes)
    module = IrModule()
    with module.part("planes") as part:
        slots = LineSlots(part, ("grad", "out", "scratch"), NUMBERS)
        _, begin, end = part.parameters
        row = part_memory(part, slots, begin)
        lengths = part.at(row, slots["row_length"], "float")
        if not is_adaptive:
            _lengths(part, slots, lengths)
        inside = part.at(row, slots["column_padding"], "float")
        width, out_width = slots["width"], slots["out_width"]
        size = slots["height"] * width
        with part.loop(begin, end) as plane:
            image = part.at(slots["out"], plane * size, "float")
            grads = part.at(slots["grad"], plane * slots["out_height"] * out_width, "float")
            fill(part, image, size, 0.0)
            with part.loop(0, slots["out_height"]) as number:
                span = row_span(part, slots, number, is_adaptive)
                grad = part.at(grads, number * out_width, "float")
                fill(part, row, slots["row_length"], 0.0)
                _spread_along(part, slots, grad, lengths, row, span, number, stride)

                def add(i: IrValue, mask: IrValue | None) -> None:
                    share = part.load(inside, i, type, mask)
                    with part.loop(span.first, span.end) as r:
                        place = (span.origin + r) * width + i
                        part.store(part.load(image, place, type, mask) + share, image, place, mask)

                row_passes(part, width, lanes, add)
    with module.kernel("avg_pool_backward") as code:
        given = LineSlots(code, ("grad", "out", "scratch"), NUMBERS)
        code.parallel(part, code.parameters[0], given["planes"], given["grain"])
    return module


def _spread_along(
    code: Code,
    slots: LineSlots,
    grad: IrValue,
    lengths: IrValue,
    row: IrValue,
    span: WindowSpan,
    number: IrValue,
    stride: int,
) -> None:
    """Add the share of each window in a row of them to the columns that it has."""
    lanes = provider.processor().lanes()
    type = vector("float", lanes)
    if stride == 1:
        height = code.splat(_height(code, slots, number), lanes)
        with code.loop(0, slots["columns"]) as column:

            def add(i: IrValue, mask: IrValue | None) -> None:
                share = code.load(grad, i, type, mask) / (code.load(lengths, i, type) * height)
                code.store(code.load(row, i + column, type, mask) + share, row, i + column, mask)

            row_passes(code, slots["out_width"], lanes, add)
        return
    with code.loop(0, slots["out_width"]) as window:
        if stride < 0:
            across = column_span(code, slots, window, True)
            first, count = across.origin, across.end
            divisor = code.convert(across.end * span.end, "float")
        else:
            first, count = window * slots["column_stride"], slots["columns"]
            divisor = code.load(lengths, window, "float") * _height(code, slots, number)
        share = code.load(grad, window, "float") / divisor
        with code.loop(first, first + count) as column:
            code.store(code.load(row, column, "float") + share, row, column)


# Whole images


def image_means() -> IrModule:
    """The mean of each image."""
    module = IrModule()
    with module.part("images") as part:
        slots = LineSlots(part, ("x", "out"), FIELDS)

        def image(lines: Lines) -> None:
            sums = lines.sum("float")

            def add(i: IrValue, mask: IrValue | None, copy: int) -> None:
                sums.add(part.load(slots["x"], i, lines.type, mask), None, copy)

            lines.each(add, COPIES, [sums])
            count = lines.number_like(part.convert(slots["width"], "double"), "double")
            lines.put(part.convert(sums.total() / count, "float"), slots["out"])

        each_line(part, slots, False, image)
    with module.kernel("image_means") as code:
        given = LineSlots(code, ("x", "out"), FIELDS)
        code.parallel(part, code.parameters[0], given["lines"], given["grain"])
    return module


def image_means_backward() -> IrModule:
    """The share of each pixel in the mean of its image."""
    module = IrModule()
    with module.part("images") as part:
        slots = LineSlots(part, ("grad", "out"), FIELDS)

        def image(lines: Lines) -> None:
            share = lines.value(slots["grad"]) / lines.number_like(part.convert(slots["width"], "float"))
            lines.each(lambda i, mask, copy: part.store(share, slots["out"], i, mask))

        each_line(part, slots, False, image)
    with module.kernel("image_means_backward") as code:
        given = LineSlots(code, ("grad", "out"), FIELDS)
        code.parallel(part, code.parameters[0], given["lines"], given["grain"])
    return module
