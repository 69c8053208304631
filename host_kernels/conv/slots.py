"""The forms of kernels of convolutions, and their slots."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from dl4all.host_kernels.conv import columns
from dl4all.host_kernels.conv.epilogue import SumsEpilogue
from dl4all.host_kernels.conv.parts import PartPlan
from dl4all.host_kernels.lib.dot_tiles import DotTile
from dl4all.ops.core.tensor_base import Shape
from dl4all.runtime.cpu.llvm.ir import Code, IrValue


class DirectForm(NamedTuple):
    """The properties on which the text of a direct kernel depends."""

    rows: int
    """Of results at a time."""
    lanes: int
    channels: int
    """Of a filter: one, or 0 where they are counted."""
    taps: Shape
    """Height and width of filters whose taps are written out, else empty."""
    step: Shape
    delta: Shape


class Form(NamedTuple):
    """The properties on which the text of a kernel depends."""

    tile: DotTile
    rest: int  # filters behind the last whole tile
    reading: int  # see Columns.reading
    gathered: bool  # whether results are copied from scratch memory
    spread: int  # how far places of a part are apart there, along the last axis; 0 if there is one part
    direct: DirectForm | None  # where a group has too few channels or filters for tiles
    swapped: bool  # whether the first operand is what is used as filters
    epilogue: SumsEpilogue


COMMON = (
    "images",
    "rows",
    "bias_stride",
    "parts",
    *(f"{what}{i}" for what in ("size", "step") for i in range(3)),
    "grain",
)
"""Numbers of a kernel, in slots before those of its parts: images; rows of results, which are filters of all
groups; stride of the bias; parts; size of results; how far places of a part are apart there, along each axis;
and images of filters that are copied at a time."""


class KernelSlots:
    """The slots of a kernel by name: addresses, and numbers."""

    def __init__(self, addresses: Sequence[str], numbers: Sequence[str]) -> None:
        self.addresses = addresses
        self.numbers = {name: number for number, name in enumerate((*addresses, *numbers))}

    def read(self, code: Code, name: str) -> IrValue:
        """A slot."""
        return code.slot(self.numbers[name], "ptr" if name in self.addresses else "i64")


class ConvolutionSlots(KernelSlots):
    """The slots of a kernel by name: addresses, common numbers, and those of each part. Of these, those of
    the first one are read.

    While a part is computed, slots have its numbers only.
    """

    def __init__(self, form: Form) -> None:
        first = ["w", "x"] if form.swapped else ["x", "w"]
        more = form.epilogue.tensors
        addresses = [*first, *["bias"] * form.epilogue.bias, *more, "out", *["scratch"] * form.gathered]
        common = (*COMMON, *form.epilogue.numbers)
        self.head = len(addresses) + len(common)
        self.block = columns.NUMBERS + len(PartPlan._fields)
        of_columns = (f"columns{i}" for i in range(columns.NUMBERS))
        super().__init__(addresses, (*common, *of_columns, *PartPlan._fields))

    def of_part(self, code: Code, part: IrValue, name: str) -> IrValue:
        """A slot of a part."""
        return code.load(code.at(code.parameters[0], part * self.block, "i64"), self.numbers[name], "i64")
