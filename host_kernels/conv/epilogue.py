"""The end of sums in registers: what a convolution stores in their place."""

from __future__ import annotations

from collections.abc import Callable

from dl4all.host_kernels.conv.slots import ConvolutionSlots, Form
from dl4all.runtime.cpu.llvm.ir import Code, IrValue
from dl4all.runtime.cpu.llvm.ir_types import lanes_of

Finished = Callable[[IrValue, IrValue, IrValue | None], IrValue]
"""What becomes of a vector of sums, given the number of its first place behind the target, and a mask."""


def epilogue(code: Code, slots: ConvolutionSlots, form: Form, row: IrValue, target: IrValue) -> Finished:
    """Writes what the sums of a row have in common.

    Args:
        code: is written to.
        slots: of the kernel.
        form: says of what the epilogue consists.
        row: number of the filter.
        target: address in the result of what is stored there.
    """
    bias, added, relu = form.epilogue
    element = form.tile.element
    if bias:
        number = code.load(slots.read(code, "bias"), row * slots.read(code, "bias_stride"), element)
    if added:
        start, here = (code.emit("i64", f"ptrtoint {p!r} to i64") for p in (slots.read(code, "out"), target))
        others = code.at(slots.read(code, "added"), here - start, "i8")

    def finished(value: IrValue, i: IrValue, mask: IrValue | None) -> IrValue:
        if bias:
            value = value + code.splat(number, lanes_of(value.type))
        if added:
            value = value + code.load(others, i, value.type, mask)
        return code.select(value < 0.0, 0.0, value) if relu else value

    return finished
