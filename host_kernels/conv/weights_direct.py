"""Gradients of filters of groups with one channel or one filter, as depthwise ones, row by row of results."""

from __future__ import annotations

from dl4all.host_kernels.conv.columns import NUMBERS, ColumnNumbers, Columns, vector_loader
from dl4all.host_kernels.conv.parts import GRAIN, Filters, Part, three
from dl4all.host_kernels.conv.shifted_rows import LEAST_ROWS, ShiftedRows, direct_form
from dl4all.host_kernels.conv.slots import DirectForm
from dl4all.ops.conv.window import Window, three_axes
from dl4all.ops.core.kernels.host_kernel import ArrayLayout, HostLaunch
from dl4all.ops.core.kernels.launch import NoKernel
from dl4all.runtime.cpu.llvm.ir import Code, IrModule, IrValue
from dl4all.runtime.cpu.llvm.ir_types import LLVM_TYPES, vector

MOST_TAPS = 25
"""Of filters whose taps are all added up at once: there is a register for each."""
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
    element = LLVM_TYPES[out.dtype.name]
    part = Part(columns, Filters(0, 0, 0, (0, 0, 0)), 0)
    form = direct_form([part], 1, element, MOST_TAPS, lambda high, rows: high % rows)
    work = products * out.shape[0] * out.shape[1] // 8
    key = (form, abs(columns.reading), element)
    return HostLaunch(weight_gradient_of_planes, key, ADDRESSES, numbers, work=work)


def weight_gradient_of_planes(form: DirectForm, reading: int, element: str) -> IrModule:
    """Slots: gradients, images, result, numbers of columns, and those of :data:`NAMES`."""
    module = IrModule()
    with module.part("planes") as code:
        _, begin, end = code.parameters
        grad, x, out = (code.slot(i, "ptr") for i in range(ADDRESSES))
        numbers = ColumnNumbers.of([code.slot(ADDRESSES + i) for i in range(NUMBERS)])
        at = {name: code.slot(ADDRESSES + NUMBERS + i) for i, name in enumerate(NAMES)}
        rows = ShiftedRows(code, form, element, reading, numbers) if form.taps else None
        with code.loop(begin, end) as plane:
            row, c = plane // at["channels"], plane % at["channels"]
            gradients = code.at(grad, row * at["grad_filter"], element)
            images = code.at(x, (row // at["filters"] * at["channels"] + c) * numbers.channel, element)
            target = code.at(out, plane * numbers.taps[1] * numbers.taps[2], element)
            if rows is not None:
                _written_out(code, form, rows, element, numbers, at, gradients, images, target)
            else:
                _counted(code, form.lanes, reading, element, numbers, at, gradients, images, target)
        part = code
    with module.kernel("weight_gradient_of_planes") as code:
        count = (
            code.slot(ADDRESSES + NUMBERS + NAMES.index(name)) for name in ("groups", "filters", "channels")
        )
        groups, filters, channels = count
        grain = code.slot(ADDRESSES + NUMBERS + NAMES.index("grain"))
        code.parallel(part, code.parameters[0], groups * filters * channels, grain)
    return module


def _written_out(
    code: Code,
    form: DirectForm,
    rows: ShiftedRows,
    element: str,
    numbers: ColumnNumbers,
    at: dict[str, IrValue],
    gradients: IrValue,
    images: IrValue,
    target: IrValue,
) -> None:
    """All taps at once: some rows of the gradient, then those behind the last of them one by one."""
    lanes, (high, wide) = form.lanes, form.taps
    type, (_, out_high, out_wide) = vector(element, lanes), numbers.out_size
    sums = [[code.variable(type, 0.0) for _ in range(wide)] for _ in range(high)]
    whole = out_high - out_high % form.rows
    with code.loop(0, out_wide, lanes) as x0, code.loop(0, at["images"]) as n:
        mask = code.first_lanes(out_wide - x0, lanes)
        source = code.at(images, n * numbers.image, element)
        line = code.at(gradients, n * at["grad_image"] + x0, element)
        for start, stop, count in ((0, whole, form.rows), (whole, out_high, 1)):
            with code.loop(start, stop, count) as y0:
                met_by = [code.load(line, (y0 + r) * out_wide, type, mask) for r in range(count)]
                totals = [[total.value for total in row] for row in sums]
                for value, k, met in rows.vectors(source, y0, x0, count):
                    value = code.select(mask, value, 0.0)  # what follows in memory may be nan
                    for r, j in met:
                        totals[j][k] = code.intrinsic("fmuladd", met_by[r], value, totals[j][k])
                for row, values in zip(sums, totals, strict=True):
                    for total, value in zip(row, values, strict=True):
                        total.value = value
    for j in range(high):
        for k in range(wide):
            code.store(code.sum_of(sums[j][k].value), target, j * wide + k)


def _counted(
    code: Code,
    lanes: int,
    reading: int,
    element: str,
    numbers: ColumnNumbers,
    at: dict[str, IrValue],
    gradients: IrValue,
    images: IrValue,
    target: IrValue,
) -> None:
    """One tap after the other."""
    type = vector(element, lanes)
    image, _, (_, row_stride, stride), size, out_size, taps, step, offset, delta = numbers
    with code.loop(0, taps[1]) as kh, code.loop(0, taps[2]) as kw:
        sums = [code.variable(type, 0.0) for _ in range(LEAST_ROWS)]
        with (
            code.loop(0, out_size[2], lanes) as x0,
            code.loop(0, at["images"]) as n,
            code.loop(0, out_size[1], LEAST_ROWS) as y0,
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
        code.store(code.sum_of(all_rows), target, kh * taps[2] + kw)
