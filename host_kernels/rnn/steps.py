"""Single steps of an LSTM and of a GRU, and their gradients: the pointwise part for all rows in one pass."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dl4all.host_kernels.elementwise.expressions import print_llvm_statements
from dl4all.host_kernels.lib.rows import grain_of, row_passes
from dl4all.ops.core.kernels.host_kernel import ArrayLayout, HostLaunch, host_kernel
from dl4all.ops.core.kernels.launch import NoKernel
from dl4all.ops.rnn import cells
from dl4all.runtime.cpu.llvm import provider
from dl4all.runtime.cpu.llvm.ir import Code, IrModule, IrValue
from dl4all.runtime.cpu.llvm.ir_types import vector

COST = 8
"""Elements' copies that take as long as an element of the result."""

Read = Callable[..., IrValue]
"""``read(operand, columns, number, start=0)``: a block of an operand's row, that has so many blocks."""

Write = Callable[[IrValue, int, int, int], None]
"""``write(value, start, columns, number)``: to a block of a row; `start` counts matrices of the state's size.

The same holds for reading.
"""

Step = Callable[[Code, Read, Write], None]


def _launch(
    text: Callable[[], IrModule], out: ArrayLayout, state: ArrayLayout, *operands: ArrayLayout
) -> HostLaunch:
    """The launch of a step for rows of `state`.

    Raises:
        NoKernel: an operand is not a contiguous array of float32.
    """
    for one in (out, state, *operands):
        if one.dtype != np.float32 or not one.is_contiguous():
            raise NoKernel("other than contiguous float32")
    rows, size = state.shape
    return HostLaunch(
        text, (), 2 + len(operands), (rows, size, grain_of(COST * size)), work=COST * out.numel()
    )


def _step_module(name: str, operands: int, step: Step) -> IrModule:
    """Slots: operands, result, rows, units, rows of a chunk."""
    lanes = provider.processor().lanes()
    type = vector("float", lanes)
    module = IrModule()
    with module.part("rows") as part:
        _, begin, end = part.parameters
        addresses = [part.slot(i, "ptr") for i in range(operands + 1)]
        matrix, size = part.slot(operands + 1) * part.slot(operands + 2), part.slot(operands + 2)
        with part.loop(begin, end) as row:

            def units(i: IrValue, mask: IrValue | None) -> None:
                def read(operand: int, columns: int, number: int, start: int = 0) -> IrValue:
                    place = matrix * start + (row * columns + number) * size + i
                    return part.load(addresses[operand], place, type, mask)

                def write(value: IrValue, start: int, columns: int, number: int) -> None:
                    place = matrix * start + (row * columns + number) * size + i
                    part.store(value, addresses[-1], place, mask)

                step(part, read, write)

            row_passes(part, size, lanes, units)
    with module.kernel(name) as code:
        code.parallel(part, code.parameters[0], code.slot(operands + 1), code.slot(operands + 3))
    return module


def _terms(read: Read, x: int, h: int, gates: int) -> dict[str, IrValue]:
    """The terms of the gates from two operands."""
    operands = (("x", x), ("h", h))
    return {
        f"{name}{gate}": read(operand, gates, gate) for name, operand in operands for gate in range(gates)
    }


@host_kernel("lstm_step", copies=True)
def prepare_lstm_step(
    out: ArrayLayout, gates_x: ArrayLayout, gates_h: ArrayLayout, cell: ArrayLayout
) -> HostLaunch:
    """
    Raises:
        NoKernel: see :func:`_launch`.
    """
    return _launch(lstm_step, out, cell, gates_x, gates_h)


def lstm_step() -> IrModule:
    """Slots: see :func:`_step_module`."""

    def step(code: Code, read: Read, write: Write) -> None:
        now = print_llvm_statements(code, cells.LSTM.forward, _terms(read, 0, 1, 4) | {"cell": read(2, 1, 0)})
        write(now["next"], 0, 1, 0)
        write(now["new_cell"], 1, 1, 0)

    return _step_module("lstm_step", 3, step)


@host_kernel("lstm_step_backward", copies=True)
def prepare_lstm_step_backward(
    out: ArrayLayout, grad: ArrayLayout, gates: ArrayLayout, cell: ArrayLayout
) -> HostLaunch:
    """
    Raises:
        NoKernel: see :func:`_launch`.
    """
    return _launch(lstm_step_backward, out, cell, grad, gates)


def lstm_step_backward() -> IrModule:
    """Slots: see :func:`_step_module`."""

    def step(code: Code, read: Read, write: Write) -> None:
        sums = {f"x{gate}": read(1, 4, gate) for gate in range(4)}
        nothing = {f"h{gate}": code.constant(sums["x0"].type, 0.0) for gate in range(4)}
        now = print_llvm_statements(code, cells.LSTM.forward, sums | nothing | {"cell": read(2, 1, 0)})
        now |= {"grad": read(0, 1, 0), "grad_cell": read(0, 1, 0, start=1)}
        now = print_llvm_statements(code, cells.LSTM.backward, now)
        for gate, name in enumerate(cells.LSTM.gradients[0]):
            write(now[name], 0, 4, gate)
        write(now["grad_cell"], 4, 1, 0)

    return _step_module("lstm_step_backward", 3, step)


@host_kernel("gru_step", copies=True)
def prepare_gru_step(
    out: ArrayLayout, gates_x: ArrayLayout, gates_h: ArrayLayout, hidden: ArrayLayout
) -> HostLaunch:
    """
    Raises:
        NoKernel: see :func:`_launch`.
    """
    return _launch(gru_step, out, hidden, gates_x, gates_h)


def gru_step() -> IrModule:
    """Slots: see :func:`_step_module`."""

    def step(code: Code, read: Read, write: Write) -> None:
        now = print_llvm_statements(
            code, cells.GRU.forward, _terms(read, 0, 1, 3) | {"hidden": read(2, 1, 0)}
        )
        write(now["next"], 0, 1, 0)

    return _step_module("gru_step", 3, step)


@host_kernel("gru_step_backward", copies=True)
def prepare_gru_step_backward(
    out: ArrayLayout, grad: ArrayLayout, gates_x: ArrayLayout, gates_h: ArrayLayout, hidden: ArrayLayout
) -> HostLaunch:
    """
    Raises:
        NoKernel: see :func:`_launch`.
    """
    return _launch(gru_step_backward, out, hidden, grad, gates_x, gates_h)


def gru_step_backward() -> IrModule:
    """Slots: see :func:`_step_module`."""

    def step(code: Code, read: Read, write: Write) -> None:
        now = print_llvm_statements(
            code, cells.GRU.forward, _terms(read, 1, 2, 3) | {"hidden": read(3, 1, 0)}
        )
        now = print_llvm_statements(code, cells.GRU.backward, now | {"grad": read(0, 1, 0)})
        for start, names in zip((0, 3), cells.GRU.gradients, strict=True):
            for gate, name in enumerate(names):
                write(now[name], start, 3, gate)
        write(now["grad"], 6, 1, 0)

    return _step_module("gru_step_backward", 4, step)
