"""Batch normalisation: statistics, the normalised input and gradients, a channel at a time.

The kernels of whole training passes read a channel twice, the second time from a cache.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from dl4all.host_kernels.lib.elements import memory_type
from dl4all.host_kernels.lib.lines import FIELDS, LineGeometry, Lines, LineSlots, each_line
from dl4all.ops.core.dtypes import FLOAT32, FLOATS
from dl4all.ops.core.kernels.host_kernel import ArrayLayout, HostLaunch, host_kernel
from dl4all.ops.core.kernels.launch import NoKernel
from dl4all.runtime.cpu.llvm.ir import IrModule, IrValue


def check_contiguous(*layouts: ArrayLayout | None) -> None:
    """
    Raises:
        NoKernel: one is not of contiguous float32, or has no elements.
    """
    if any(storages_of(*layouts)):
        raise NoKernel("other than contiguous float32")


def storages_of(*layouts: ArrayLayout | None) -> tuple[str, ...]:
    """The storages of arrays, for :class:`~dl4all.host_kernels.lib.lines.LineSlots`; of None there is none.

    Raises:
        NoKernel: one is not of contiguous floats of 32 or 16 bits, or has no elements.
    """
    storages = []
    for layout in layouts:
        if layout is None:
            continue
        if layout.dtype not in FLOATS or not layout.is_contiguous() or 0 in layout.shape:
            raise NoKernel("other than contiguous floats")
        storages.append("" if layout.dtype == FLOAT32 else memory_type(layout.dtype))
    return tuple(storages)


def channel_launch(
    text: object,
    x: ArrayLayout,
    arrays: Mapping[str, ArrayLayout | None],
    floats: Sequence[float],
    **options: object,
) -> HostLaunch:
    """The launch of a kernel of channels for these arrays, those that are None left out."""
    storages = storages_of(*arrays.values())
    inner = math.prod(x.shape[2:])
    geometry, across = LineGeometry.of_channels(x.shape[0], x.shape[1], inner)
    names = tuple(name for name, layout in arrays.items() if layout is not None)
    constants = (*geometry, x.shape[1], float(x.shape[0] * inner), *floats)
    return HostLaunch(text, (across, names, storages), len(names), constants, work=4 * x.numel(), **options)  # type: ignore[arg-type]


@host_kernel("batch_norm_stats", copies=True)
def prepare_stats(out: ArrayLayout, x: ArrayLayout) -> HostLaunch:
    """
    Raises:
        NoKernel: operands are not of contiguous floats of 32 or 16 bits.
    """
    return channel_launch(batch_norm, x, {"x": x, "stats": out}, (0.0, 0.0))


@host_kernel("batch_norm_apply", copies=True)
def prepare_apply(
    out: ArrayLayout,
    x: ArrayLayout,
    mean: ArrayLayout,
    var: ArrayLayout,
    weight: ArrayLayout | None,
    bias: ArrayLayout | None,
    eps: float,
) -> HostLaunch:
    """
    Raises:
        NoKernel: operands are not of contiguous floats of 32 or 16 bits.
    """
    arrays = {"x": x, "mean": mean, "var": var, "weight": weight, "bias": bias, "out": out}
    return channel_launch(batch_norm, x, arrays, (float(eps), 0.0))


@host_kernel("batch_norm_training")
def prepare_training(
    names: tuple[str, ...], eps: float, reads: list[ArrayLayout], writes: list[ArrayLayout]
) -> HostLaunch:
    """The launch of a forward pass; it is run with the momentum.

    Raises:
        NoKernel: operands are not of contiguous floats of 32 or 16 bits.
    """
    arrays = dict(zip(names, (*reads, *writes), strict=True))
    return channel_launch(batch_norm, reads[0], arrays, (float(eps), 0.0), numbers=(len(FIELDS) + 3,))


@host_kernel("batch_norm_sums", copies=True)
def prepare_sums(
    out: ArrayLayout, grad: ArrayLayout, x: ArrayLayout, mean: ArrayLayout, var: ArrayLayout, eps: float
) -> HostLaunch:
    """
    Raises:
        NoKernel: operands are not of contiguous floats of 32 or 16 bits.
    """
    arrays = {"grad": grad, "x": x, "mean": mean, "var": var, "sums": out}
    return channel_launch(batch_norm_backward, x, arrays, (float(eps),))


@host_kernel("batch_norm_backward", copies=True)
def prepare_backward(
    out: ArrayLayout,
    grad: ArrayLayout,
    x: ArrayLayout,
    mean: ArrayLayout,
    var: ArrayLayout,
    sums: ArrayLayout,
    weight: ArrayLayout | None,
    eps: float,
) -> HostLaunch:
    """
    Raises:
        NoKernel: operands are not of contiguous floats of 32 or 16 bits.
    """
    arrays = {"grad": grad, "x": x, "mean": mean, "var": var, "given": sums, "weight": weight, "out": out}
    return channel_launch(batch_norm_backward, x, arrays, (float(eps),))


@host_kernel("batch_norm_gradients")
def prepare_gradients(
    names: tuple[str, ...], eps: float, reads: list[ArrayLayout], writes: list[ArrayLayout]
) -> HostLaunch:
    """The launch of a backward pass.

    Raises:
        NoKernel: operands are not of contiguous floats of 32 or 16 bits.
    """
    return channel_launch(
        batch_norm_backward, reads[1], dict(zip(names, (*reads, *writes), strict=True)), (float(eps),)
    )


def batch_norm(across: bool, arrays: tuple[str, ...], storages: tuple[str, ...]) -> IrModule:
    """Normalise by the statistics of the input, unless there are `mean` and `var`.

    Floats: elements of a channel, eps, momentum.
    """
    module = IrModule()
    with module.part("channels") as part:
        slots = LineSlots(part, arrays, (*FIELDS, "channels"), ("elements", "eps", "momentum"), storages)

        def channel(lines: Lines) -> None:
            x = slots["x"]
            if "mean" in slots:
                mean, var = lines.value(slots["mean"]), lines.value(slots["var"])
            else:
                mean, var = statistics(lines, x, slots["elements"])
            if "stats" in slots:
                lines.put(mean, slots["stats"])
                lines.put(var, part.at(slots["stats"], slots["channels"], "float"))
            if "running_mean" in slots:
                momentum, elements = slots["momentum"], slots["elements"]
                unbiased = var * lines.number_like(part.convert(elements / (elements - 1.0), "float"))
                for name, value in (("running_mean", mean), ("running_var", unbiased)):
                    kept = lines.value(slots[name]) * lines.number_like(part.convert(1.0 - momentum, "float"))
                    share = value * lines.number_like(part.convert(momentum, "float"))
                    lines.put(kept + share, slots[name])
            if "out" not in slots:
                return
            scale = deviation(lines, var, slots["eps"])
            if "weight" in slots:
                scale = scale * lines.value(slots["weight"])
            bias = lines.value(slots["bias"]) if "bias" in slots else None

            def apply(i: IrValue, mask: IrValue | None, copy: int) -> None:
                centered = part.load(x, i, lines.type, mask) - mean
                value = centered * scale if bias is None else part.intrinsic("fmuladd", centered, scale, bias)
                part.store(value, slots["out"], i, mask)

            lines.each(apply, 2)

        each_line(part, slots, across, channel)
    with module.kernel("batch_norm") as code:
        given = LineSlots(code, arrays, FIELDS)
        code.parallel(part, code.parameters[0], given["lines"], given["grain"])
    return module


def statistics(lines: Lines, x: IrValue, elements: IrValue) -> tuple[IrValue, IrValue]:
    """Mean and variance of a line: from sums of float64 of the differences from its first element."""
    code = lines.code
    first = lines.first(x)
    finite = code.intrinsic("fabs", first) < math.inf
    origin = code.select(finite, first, 0.0)
    sums, squares = lines.sum(copies=2), lines.sum(copies=2)

    def step(i: IrValue, mask: IrValue | None, copy: int) -> None:
        value = code.load(x, i, lines.type, mask)
        if mask is not None:
            value = code.select(mask, value, origin)
        difference = code.convert(value, "double") - code.convert(origin, "double")
        sums.add(difference, None, copy)
        squares.add_product(difference, difference, None, copy)

    lines.each(step, 2)
    count = lines.number_like(elements, "double")
    shift = sums.total() / count
    spread = squares.total() / count - shift * shift
    var = code.select(spread < 0.0, 0.0, spread)
    mean = shift + code.convert(origin, "double")
    return code.convert(mean, "float"), code.convert(var, "float")


def deviation(lines: Lines, var: IrValue, eps: IrValue) -> IrValue:
    """``1 / sqrt(var + eps)``."""
    return 1.0 / lines.code.intrinsic("sqrt", var + lines.number_like(lines.code.convert(eps, "float")))


def batch_norm_backward(across: bool, arrays: tuple[str, ...], storages: tuple[str, ...]) -> IrModule:
    """Sums over channels, unless they are given, and the input's gradient if it is among the arrays.

    Floats: elements of a channel, eps.
    """
    module = IrModule()
    with module.part("channels") as part:
        slots = LineSlots(part, arrays, (*FIELDS, "channels"), ("elements", "eps"), storages)

        def channel(lines: Lines) -> None:
            grad, x = slots["grad"], slots["x"]
            if "stats" in slots:
                mean = lines.value(slots["stats"])
                var = lines.value(part.at(slots["stats"], slots["channels"], "float"))
            else:
                mean, var = lines.value(slots["mean"]), lines.value(slots["var"])
            scale = deviation(lines, var, slots["eps"])
            if "given" in slots:
                sum_g = lines.value(slots["given"])
                sum_gy = lines.value(part.at(slots["given"], slots["channels"], "float"))
            else:
                sum_g, sum_gy = gradient_sums(lines, grad, x, mean, scale)
                lines.put(sum_g, slots["sums"])
                lines.put(sum_gy, part.at(slots["sums"], slots["channels"], "float"))
            if "out" not in slots:
                return
            share = lines.number_like(part.convert(1.0 / slots["elements"], "float"))
            mean_g, factor = sum_g * share, sum_gy * scale * share
            if "weight" in slots:
                scale = scale * lines.value(slots["weight"])

            def step(i: IrValue, mask: IrValue | None, copy: int) -> None:
                g, centered = part.load(grad, i, lines.type, mask), part.load(x, i, lines.type, mask) - mean
                value = part.intrinsic("fmuladd", -centered, factor, g - mean_g) * scale
                part.store(value, slots["out"], i, mask)

            lines.each(step, 2)

        each_line(part, slots, across, channel)
    with module.kernel("batch_norm_backward") as code:
        given = LineSlots(code, arrays, FIELDS)
        code.parallel(part, code.parameters[0], given["lines"], given["grain"])
    return module


def gradient_sums(
    lines: Lines, grad: IrValue, x: IrValue, mean: IrValue, scale: IrValue
) -> tuple[IrValue, IrValue]:
    """The sums over a line of `grad`, and of `grad` times the normalised `x`."""
    code = lines.code
    sum_g, sum_gx = lines.sum(copies=2), lines.sum(copies=2)

    def step(i: IrValue, mask: IrValue | None, copy: int) -> None:
        g, centered = code.load(grad, i, lines.type, mask), code.load(x, i, lines.type, mask) - mean
        sum_g.add(g, mask, copy)
        sum_gx.add_product(g, centered, mask, copy)

    lines.each(step, 2)
    return code.convert(sum_g.total(), "float"), code.convert(sum_gx.total(), "float") * scale
