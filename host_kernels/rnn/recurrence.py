"""Recurrent layers over whole sequences: all time steps in one call.

A step multiplies the hidden state by the weights and computes gates and states from the sums, tile by tile,
while they are in a cache: each unit's gates belong to one tile. Threads share the tiles of a step, and start
the next one together. Hidden states are read where they were put out.
"""

from __future__ import annotations

import numpy as np

from dl4all.host_kernels.elementwise.expressions import print_llvm_statements
from dl4all.host_kernels.lib.rows import row_passes
from dl4all.host_kernels.rnn.tiles import (
    BLOCK_ROWS,
    PACKED_ELEMENTS,
    for_tiles,
    packing_columns,
    packing_rows,
    panel_vectors,
    products,
    run_segments,
    segment,
    segments_part,
)
from dl4all.ops.core.kernels.host_kernel import LONG, ArrayLayout, HostLaunch, host_kernel
from dl4all.ops.core.kernels.launch import NoKernel
from dl4all.ops.rnn import cells, layout
from dl4all.runtime.cpu.llvm import provider
from dl4all.runtime.cpu.llvm.ir import Code, IrModule, IrValue
from dl4all.runtime.cpu.llvm.ir_types import vector

NUMBERS = 10
"""Constants ahead of the segments."""


def _check(*layouts: ArrayLayout | None) -> None:
    """
    Raises:
        NoKernel: an operand is not a contiguous array of float32.
    """
    for one in layouts:
        if one is not None and (one.dtype != np.float32 or not one.is_contiguous()):
            raise NoKernel("other than contiguous float32")


@host_kernel("recurrent_sequence", copies=True)
def prepare_sequence(
    out: ArrayLayout,
    gates_x: ArrayLayout,
    hidden: ArrayLayout,
    weight: ArrayLayout,
    cell: ArrayLayout | None,
    bias: ArrayLayout | None,
    projection: ArrayLayout | None,
    mode: str,
    sizes: tuple[int, ...],
    reverse: bool,
    save: bool,
) -> HostLaunch:
    """
    Raises:
        NoKernel: operands are not contiguous and of float32, or there is a projection.
    """
    _check(out, gates_x, hidden, weight, cell, bias)
    if projection is not None:
        raise NoKernel("a projection")
    gates, size = layout.CELLS[mode].gates, weight.shape[1]
    problem = layout.SequenceProblem(
        layout.CELLS[mode], gates_x.shape[0], sizes[0], size, size, projected=False
    )
    at = layout.result_regions(problem, save=save)
    units, lanes = panel_vectors(gates, size), provider.processor().lanes()
    panels, stride = -(-size // (units * lanes)), -(-size // lanes) * lanes * gates * units * lanes
    segments = list[int]()
    before, count = (0, 0), 0
    for start, rows in layout.time_steps(sizes, reverse=reverse):
        known = min(before[1], rows)
        for first, some, source in ((0, known, (1, before[0])), (known, rows - known, (0, known))):
            if some:
                words = [some, start + first, *source, first]
                segments += segment(words, some, panels, gates * units * lanes * size)
                count += 1
        before = (start, rows) if rows else before
    numbers = [
        size, panels, stride,
        *(at[name].start if name in at else 0 for name in ("hidden", "cell", "before", "saved")),
        sizes[0] * size, max(1, PACKED_ELEMENTS // (size * lanes)), count,
    ]  # fmt: skip
    addresses = 4 + (cell is not None) + (bias is not None)
    work = sum(sizes) * gates * size * size
    return HostLaunch(
        sequence, (mode, bias is not None, save, units), addresses, [*numbers, *segments],
        scratch=4 * panels * stride, work=min(work, LONG),
    )  # fmt: skip


def sequence(mode: str, has_bias: bool, save: bool, units: int) -> IrModule:
    """Slots: the input's terms, hidden state, weight, an LSTM's cell, bias, result, scratch; numbers."""
    lanes = provider.processor().lanes()
    type = vector("float", lanes)
    gates, is_lstm, rule = layout.CELLS[mode].gates, mode == "lstm", cells.RULES[mode]
    place = 3 + is_lstm + has_bias
    first = place + 2
    module = IrModule()
    pack = packing_rows(module, gates, units)
    with segments_part(module) as scope:
        part = scope.code
        terms, hidden, out, packed = (scope.address(slot) for slot in (0, 1, place, place + 1))
        bias = scope.address(place - 1)
        size, _, stride, hidden_at, cell_at, before_at, saved_at = (scope.number(first + i) for i in range(7))
        rows, x_row, is_output, source_row, state_row = (scope.of_segment(i) for i in range(5))
        source = part.select(is_output.differs(0), out, hidden)
        sums = part.local("float", BLOCK_ROWS * gates * units * lanes)

        def tile(panel: IrValue, begin: IrValue, count: IrValue) -> None:
            states = part.at(source, (source_row + begin) * size, "float")
            weights = part.at(packed, panel * stride, "float")
            products(part, states, size, count, weights, size, sums, gates * units)
            with part.loop(0, count) as row:
                for v in range(units):
                    unit = (panel * units + v) * lanes
                    gate_row(row, begin, states, unit, v)

        def gate_row(row: IrValue, begin: IrValue, states: IrValue, unit: IrValue, v: int) -> None:
            mask = part.first_lanes(size - unit, lanes)
            x, state = (x_row + begin) + row, (state_row + begin) + row

            def term(gate: int) -> IrValue:
                return part.load(terms, (x * gates + gate) * size + unit, type, mask)

            def product(gate: int) -> IrValue:
                value = part.load(sums, row * (gates * units * lanes) + (gate * units + v) * lanes, type)
                return value + part.load(bias, size * gate + unit, type, mask) if has_bias else value

            def put(value: IrValue, start: IrValue, index: IrValue) -> None:
                part.store(value, out, start + (index + unit), mask)

            old = part.load(states, row * size + unit, type, mask)
            given = {f"x{gate}": term(gate) for gate in range(gates)}
            given |= {f"h{gate}": product(gate) for gate in range(gates)} | {"hidden": old}
            if is_lstm:
                given["cell"] = part.load(out, cell_at + (state * size + unit), type, mask)
            now = print_llvm_statements(part, rule.forward, given)
            if is_lstm:
                put(now["new_cell"], cell_at, state * size)
            part.store(now["next"], out, x * size + unit, mask)
            put(now["next"], hidden_at, state * size)
            if save:
                put(old, before_at, x * size)
                saved = rule.saved[: layout.CELLS[mode].saved]
                for number, name in enumerate(saved):
                    put(now[name], saved_at, (x * len(saved) + number) * size)

        for_tiles(scope, rows, tile)
    with module.kernel("sequence") as code:
        size, panels, stride, _, cell_at, _, _, states, grain, count = (
            code.slot(first + i) for i in range(NUMBERS)
        )
        _pack(code, pack, (2, place + 1), (size, size, stride), panels * (gates * units), grain)
        if is_lstm:
            _copy(code, code.slot(3, "ptr"), code.at(code.slot(place, "ptr"), cell_at, "float"), states)
        run_segments(code, part, first + NUMBERS, count)
    return module


def _pack(
    code: Code,
    pack: Code,
    addresses: tuple[int, int],
    numbers: tuple[IrValue, ...],
    count: IrValue,
    grain: IrValue,
) -> None:
    """Pack the weights."""
    given = code.local("i64", 5)
    for i, slot in enumerate(addresses):
        code.store(code.slot(slot, "ptr"), given, i)
    for i, number in enumerate(numbers):
        code.store(number, given, 2 + i)
    code.parallel(pack, given, count, grain)


def _copy(code: Code, source: IrValue | None, target: IrValue, count: IrValue) -> None:
    """Copy contiguous elements, zeros if there is no source."""
    lanes = provider.processor().lanes()
    type = vector("float", lanes)

    def step(i: IrValue, mask: IrValue | None) -> None:
        value = code.constant(type, 0.0) if source is None else code.load(source, i, type, mask)
        code.store(value, target, i, mask)

    row_passes(code, count, lanes, step)


@host_kernel("recurrent_sequence_backward", copies=True)
def prepare_sequence_backward(
    out: ArrayLayout,
    grad: ArrayLayout,
    result: ArrayLayout,
    weight: ArrayLayout,
    grad_hidden: ArrayLayout | None,
    grad_cell: ArrayLayout | None,
    projection: ArrayLayout | None,
    mode: str,
    sizes: tuple[int, ...],
    reverse: bool,
) -> HostLaunch:
    """
    Raises:
        NoKernel: operands are not contiguous and of float32, or there is a projection.
    """
    _check(out, grad, result, weight, grad_hidden, grad_cell)
    if projection is not None:
        raise NoKernel("a projection")
    kind, size = layout.CELLS[mode], weight.shape[1]
    problem = layout.SequenceProblem(kind, grad.shape[0], sizes[0], size, size, projected=False)
    found, at = layout.result_regions(problem, save=True), layout.gradient_regions(problem)
    units, lanes = panel_vectors(1, size), provider.processor().lanes()
    depth = kind.gates * size
    panels, stride = -(-size // (units * lanes)), depth * units * lanes
    segments, count = list[int](), 0
    before = (0, 0)
    for start, rows in [*reversed(layout.time_steps(sizes, reverse=reverse)), (0, 0)]:
        if not rows and (start or not before[1]):
            continue
        both, most = min(before[1], rows), max(before[1], rows)
        for first, some in ((0, both), (both, most - both)):
            if some:
                words = [
                    some,
                    first,
                    before[0] + first,
                    start + first,
                    int(first < before[1]),
                    int(first < rows),
                ]
                segments += segment(words, some, panels, units * lanes * depth)
                count += 1
        before = (start, rows)
    numbers = [
        size, panels, stride, found["before"].start, found["saved"].start,
        *(at[name].start if name in at else 0 for name in ("gates_h", "hidden", "cell")),
        sizes[0] * size, max(1, PACKED_ELEMENTS // size), count,
    ]  # fmt: skip
    given = grad_hidden is not None, grad_cell is not None
    return HostLaunch(
        sequence_backward, (mode, *given, units), 4 + sum(given), [*numbers, *segments],
        scratch=4 * panels * stride, work=min(sum(sizes) * depth * size, LONG),
    )  # fmt: skip


def sequence_backward(mode: str, has_hidden: bool, has_cell: bool, units: int) -> IrModule:
    """Slots: gradient, result, weight, the last states' gradients if given, result, scratch; numbers."""
    lanes = provider.processor().lanes()
    type = vector("float", lanes)
    kind, rule = layout.CELLS[mode], cells.RULES[mode]
    gates = kind.gates
    place = 3 + has_hidden + has_cell
    first = place + 2
    module = IrModule()
    pack = packing_columns(module, units)
    with segments_part(module) as scope:
        part = scope.code
        grads, result, out, packed = (scope.address(slot) for slot in (0, 1, place, place + 1))
        size, _, stride, before_at, saved_at, other_at, hidden_at, cell_at = (
            scope.number(first + i) for i in range(8)
        )
        rows, state_row, old_row, new_row, has_product, has_gates = (scope.of_segment(i) for i in range(6))
        depth = size * gates
        terms = part.at(out, other_at, "float") if kind.separate else out
        sums = part.local("float", BLOCK_ROWS * units * lanes)

        def tile(panel: IrValue, begin: IrValue, count: IrValue) -> None:
            with part.if_(has_product.differs(0)):
                given = part.at(terms, (old_row + begin) * depth, "float")
                weights = part.at(packed, panel * stride, "float")
                products(part, given, depth, count, weights, depth, sums, units)
            with part.loop(0, count) as row:
                for v in range(units):
                    unit = (panel * units + v) * lanes
                    gate_row(row, begin, unit, v)

        def gate_row(row: IrValue, begin: IrValue, unit: IrValue, v: int) -> None:
            mask = part.first_lanes(size - unit, lanes)
            state_at = hidden_at + (((state_row + begin) + row) * size + unit)
            state = part.load(out, state_at, type, mask)
            product = part.load(sums, row * (units * lanes) + v * lanes, type)
            total = product + state if kind.separate else product
            total = part.select(has_product.differs(0), total, state)
            with part.if_(has_gates.equals(0)):
                part.store(total, out, state_at, mask)
            with part.if_(has_gates.differs(0)):
                x = (new_row + begin) + row
                gradient = part.load(grads, x * size + unit, type, mask) + total

                def found(start: IrValue | int, columns: int, number: int) -> IrValue:
                    return part.load(result, (x * columns + number) * size + unit + start, type, mask)

                def put(values: list[IrValue], start: IrValue | int) -> None:
                    for number, value in enumerate(values):
                        part.store(value, out, (x * gates + number) * size + unit + start, mask)

                given = {"grad": gradient}
                for number, name in enumerate(rule.saved):
                    given[name] = found(saved_at, kind.saved, number) if kind.saved else found(0, 1, 0)
                cell_place = cell_at + (((state_row + begin) + row) * size + unit)
                if mode == "lstm":
                    given["grad_cell"] = part.load(out, cell_place, type, mask)
                elif mode == "gru":
                    given["hidden"] = found(before_at, 1, 0)
                now = print_llvm_statements(part, rule.backward, given)
                put([now[name] for name in rule.gradients[0]], 0)
                if mode == "lstm":
                    part.store(now["grad_cell"], out, cell_place, mask)
                elif mode == "gru":
                    put([now[name] for name in rule.gradients[1]], other_at)
                    part.store(now["grad"], out, state_at, mask)

        for_tiles(scope, rows, tile)
    with module.kernel("sequence_backward") as code:
        size, _, stride, _, _, _, hidden_at, cell_at, states, grain, count = (
            code.slot(first + i) for i in range(NUMBERS + 1)
        )
        out = code.slot(place, "ptr")
        _pack(code, pack, (2, place + 1), (size, size, stride), size * gates, grain)
        _copy(code, code.slot(3, "ptr") if has_hidden else None, code.at(out, hidden_at, "float"), states)
        if mode == "lstm":
            source = code.slot(3 + has_hidden, "ptr") if has_cell else None
            _copy(code, source, code.at(out, cell_at, "float"), states)
        run_segments(code, part, first + NUMBERS + 1, count)
    return module
