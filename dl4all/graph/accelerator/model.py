"""The hardware that programs are timed on: sizes, rates, and the cycles that instructions keep their unit.

A systolic array of multiply-adders computes products and convolutions, a vector unit everything else, and a
direct memory access unit (DMA) copies between DRAM and scratchpad. The array's cycles are those of
SCALE-Sim's analytical model (Samajdar et al., "A Systematic Methodology for Characterizing Scalability of DNN
Accelerators using SCALE-Sim", ISPASS 2020, equations 1 to 4).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from dl4all.errors import ArgumentError
from dl4all.graph.op_codes.instruction import Axes, Register, SlidingWindow
from dl4all.graph.op_codes.opcode import CODES, OPCODES
from dl4all.ops.core.kernels.launch import ceil_div

Dataflow = Literal["os", "ws", "is"]
"""The operand that stays in the array: outputs, weights or inputs."""
Unit = Literal["array", "vector", "dma"]
UNITS: tuple[Unit, ...] = ("array", "vector", "dma")
BURST = 64
"""Bytes that DRAM gives at least."""
LATENCY = {"array": 0, "vector": 8, "dma": 100}
"""Cycles from an instruction's last element to its result: the array's are part of its formula."""
FUNCTION_PASSES = 4
"""Passes of the vector unit through an element of exp, log and their like."""


class EnergyTable(NamedTuple):
    """Picojoules of an operation on 32 bits, in 45 nm: Han et al., "EIE", ISCA 2016, table I.

    A multiply-add is a product of floats, 3.7, and a sum, 0.9. Of the scratchpad the table has caches.
    """

    multiply_add: float = 4.6
    vector: float = 0.9
    scratchpad: float = 5.0
    dram: float = 640.0


@dataclass(frozen=True)
class Hardware:
    """The sizes and rates of an accelerator; see :func:`dl4all.accelerator_model`.

    Args:
        array: rows and columns.
        clock: Hz.
        dram: bytes a second.
        scratchpad: bytes.
        lanes: elements that the vector unit takes in a cycle.
        dataflow: of the array.
        energy: picojoules.

    Raises:
        ArgumentError: one is not positive, or there is no such dataflow.
    """

    array: tuple[int, int] = (16, 16)
    clock: float = 1e9
    dram: float = 25.6e9
    scratchpad: int = 1 << 20
    lanes: int = 16
    dataflow: Dataflow = "os"
    energy: EnergyTable = field(default_factory=EnergyTable)

    def __post_init__(self) -> None:
        whole = (*self.array, self.scratchpad, self.lanes)
        if len(self.array) != 2 or any(not isinstance(n, int) or n < 1 for n in whole):
            raise ArgumentError(
                "[accelerator_model] array, scratchpad and lanes are positive ints, such as (16, 16), 1 << 20"
                f" and 16; got {self.array}, {self.scratchpad} and {self.lanes}"
            )
        if not (0 < self.clock < math.inf and 0 < self.dram < math.inf):
            raise ArgumentError(
                f"[accelerator_model] clock and dram are positive numbers, got {self.clock} and {self.dram}"
            )
        if self.dataflow not in ("os", "ws", "is"):
            raise ArgumentError(
                "[accelerator_model] dataflow is 'os' (outputs stay in the array), 'ws' (weights) or 'is' "
                f"(inputs), got {self.dataflow!r}"
            )

    @property
    def words(self) -> int:
        """The size of the scratchpad."""
        return self.scratchpad // 4

    @property
    def dram_bytes_per_cycle(self) -> float:
        return self.dram / self.clock


class ArrayWork(NamedTuple):
    """Products of matrices, as the array sees them: so many times rows x depth @ depth x columns."""

    times: int
    rows: int
    columns: int
    depth: int

    @property
    def multiply_adds(self) -> int:
        return self.times * self.rows * self.columns * self.depth


def array_work(
    name: str, y: Axes, operands: Sequence[Register], window: SlidingWindow | None
) -> ArrayWork | None:
    """The products of an instruction with a result of sizes `y`; None if it is none of the array.

    The rows of a convolution are its pixels, its columns the filters of a group; the array takes the windows
    from the image by their addresses (im2col).
    """
    if name == "conv" and window is not None:
        image, filters = operands[0].sizes, operands[1].sizes
        groups = image[1] // filters[1]
        return ArrayWork(groups, y[0] * y[2] * y[3], y[1] // groups, filters[1] * math.prod(window.size))
    if name in ("matmul", "matmul_int8"):
        depth = operands[0].sizes[3] * (4 if name == "matmul_int8" else 1)
        return ArrayWork(y[0] * y[1], y[2], y[3], depth)
    return None


def array_cycles(work: ArrayWork, array: tuple[int, int], dataflow: Dataflow) -> int:
    """The cycles of products: SCALE-Sim's (2 R + C + T - 2) for each fold of the array.

    Args:
        work: how many, and their sizes.
        array: R rows and C columns.
        dataflow: says which sizes lie along rows, columns and time T.

    >>> array_cycles(ArrayWork(1, 32, 16, 100), (16, 16), "os")
    292
    """
    rows, columns = array
    along = {
        "os": (work.rows, work.columns, work.depth),
        "ws": (work.depth, work.columns, work.rows),
        "is": (work.depth, work.rows, work.columns),
    }[dataflow]
    folds = ceil_div(along[0], rows) * ceil_div(along[1], columns)
    return work.times * folds * (2 * rows + columns + along[2] - 2)


def unit_of(name: str, *, crosses: bool) -> Unit:
    """The unit of an instruction; `crosses` says whether it touches DRAM."""
    if crosses:
        return "dma"
    return "array" if OPCODES[CODES[name]].kind in ("product", "packed") or name == "conv" else "vector"


def dma_bytes(register: Register) -> int:
    """The bytes that DRAM moves for a register: each run of adjacent words takes whole bursts.

    The DMA walks along memory, whatever the order of the axes: it transposes on the way.

    >>> from dl4all.graph.op_codes.instruction import register
    >>> dma_bytes(register(0, (4, 16))), dma_bytes(register(0, (16, 4), (1, 16)))
    (256, 256)
    >>> dma_bytes(register(0, (4, 15), (100, 1)))
    256
    """
    run, elements = 1, 1
    for stride, size in sorted(zip(register.strides, register.sizes, strict=True)):
        if stride:  # a repeated element is read once
            elements *= size
            run *= size if stride == run else 1
    return elements // run * ceil_div(4 * run, BURST) * BURST


def vector_cycles(
    name: str, y: Axes, operands: Sequence[Register], window: SlidingWindow | None, lanes: int
) -> int:
    """The cycles of an instruction in the vector unit."""
    kind = OPCODES[CODES[name]].kind
    elements = math.prod(y)
    if kind == "reduction":
        return ceil_div(operands[0].elements, lanes) + math.prod(y[:3])
    if kind == "window" and window is not None:
        return ceil_div(elements, lanes) * math.prod(window.size)
    return ceil_div(elements, lanes) * (FUNCTION_PASSES if kind == "function" else 1)
